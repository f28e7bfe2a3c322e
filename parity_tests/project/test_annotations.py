"""The twins' shape annotations are checked while the tests run."""

from __future__ import annotations

import jax.numpy as jnp
import jaxtyping
import pytest
import torch

from relpos_jax.schemes import rope as jax_rope
from relpos_torch.schemes import rope as torch_rope


def test_torch_annotations_are_checked() -> None:
    x, angle = torch.ones(2, 3, 5, 14), torch.ones(5, 7)
    assert torch_rope.rotate(x, angle, angle, "half").shape == (2, 3, 5, 14)
    with pytest.raises(jaxtyping.TypeCheckError, match="rotate"):
        torch_rope.rotate(x[0], angle, angle, "half")


def test_jax_annotations_are_checked() -> None:
    x, angle = jnp.ones((2, 5, 3, 14)), jnp.ones((5, 7))
    assert jax_rope.rotate(x, angle, angle, "half").shape == (2, 5, 3, 14)
    with pytest.raises(jaxtyping.TypeCheckError, match="rotate"):
        jax_rope.rotate(x[0], angle, angle, "half")
