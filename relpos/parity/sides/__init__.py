"""The sides that answer cases: one file per framework, imported only when it is used."""

from relpos.parity.sides.base import MODES, Answer, CannotRunError, Side, installed, side_of

__all__ = ["MODES", "Answer", "CannotRunError", "Side", "installed", "side_of"]
