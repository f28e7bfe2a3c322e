"""The layouts that are known by name."""

from __future__ import annotations

from relpos.errors import WeightsError
from relpos.weights.layout import Layout
from relpos.weights.layouts.relpos import LINEN, NNX, TORCH
from relpos.weights.layouts.vits import VITS, VITS_TRANSFORMERS

__all__ = ["LAYOUTS", "as_layout"]

#: Every layout by its name.
LAYOUTS: dict[str, Layout] = {
    layout.name: layout for layout in (TORCH, NNX, LINEN, VITS, VITS_TRANSFORMERS)
}


def as_layout(layout: Layout | str) -> Layout:
    """A layout, given itself or its name."""
    if isinstance(layout, Layout):
        return layout
    if layout not in LAYOUTS:
        raise WeightsError(
            "a layout must be known by name", got=repr(layout), expected=f"one of {[*LAYOUTS]}"
        )
    return LAYOUTS[layout]
