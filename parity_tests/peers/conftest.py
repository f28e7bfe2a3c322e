"""Peers are imported without what none of them needs here."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from parity_tests.twins.twin import JaxTwin, TorchTwin

# transformers imports torchvision where it is installed, and a build of that for another torch
# makes every model of theirs fail to import.
try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    sys.modules["torchvision"] = None  # type: ignore[assignment]


@pytest.fixture(params=[TorchTwin(), JaxTwin()], ids=["torch", "jax"])
def twin(request: pytest.FixtureRequest) -> Any:
    """Each twin in turn."""
    return request.param
