"""Every test of this folder runs on both twins."""

from __future__ import annotations

from typing import Any

import pytest

from parity_tests.twins.twin import JaxTwin, TorchTwin


@pytest.fixture(params=[TorchTwin(), JaxTwin()], ids=["torch", "jax"])
def twin(request: pytest.FixtureRequest) -> Any:
    """Each twin in turn."""
    return request.param
