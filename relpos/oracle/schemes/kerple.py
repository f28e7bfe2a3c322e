"""score = scale * <q, k> - p * log(1 + a * |j - i|), or - p * |j - i| ** a."""

from __future__ import annotations

from relpos.oracle.functions import logarithm, power, sigmoid, softplus
from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import Kerple

__all__ = ["KerpleOracle"]


class KerpleOracle(SchemeOracle[Kerple]):
    """A learned penalty of logarithmic or power growth."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """The penalty, not scaled."""
        steps = abs(key.position - query.position)
        p = softplus(self.params["penalty"][(h,)])
        if self.scheme.kind == "log":
            a = softplus(self.params["rate"][(h,)])
            growth = logarithm(self.tape.constant(1.0) + a * self.tape.constant(steps))
        else:
            a = sigmoid(self.params["exponent"][(h,)]) * self.tape.constant(2.0)
            growth = power(steps, a) if steps else a * self.tape.constant(0.0)
        return -(p * growth)
