"""What the tests beside peers share."""

from __future__ import annotations

from typing import Any

import pytest

from parity_tests.twins.twin import JaxTwin, TorchTwin


@pytest.fixture(params=[TorchTwin(), JaxTwin()], ids=["torch", "jax"])
def twin(request: pytest.FixtureRequest) -> Any:
    """Each twin in turn."""
    return request.param
