"""The sides, made once per worker."""

from __future__ import annotations

import pytest

from relpos.parity.sides import Side, side_of


@pytest.fixture(scope="session")
def sides() -> dict[str, Side]:
    """Both frameworks on the CPU."""
    return {framework: side_of(framework) for framework in ("torch", "jax")}
