"""score = scale * <q, k>; the value is v."""

from __future__ import annotations

from relpos.oracle.schemes.base import SchemeOracle
from relpos.schemes import NoPosition

__all__ = ["NoPositionOracle"]


class NoPositionOracle(SchemeOracle[NoPosition]):
    """Nothing is added anywhere."""
