"""PyTorch's own attention, for calls whose positions have all gone into queries and keys."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from relpos.checks import Sizes
from relpos_torch.kernels.masks import attention_mask
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Terms

__all__ = ["fused"]


def fused(
    q: Float[Tensor, "B H Lq c"],
    k: Float[Tensor, "B G Lk c"],
    v: Float[Tensor, "B G Lk d"],
    terms: Terms,
    *,
    mask: Bool[Tensor, "..."] | None,
    positions: Positions,
    dropout: float,
) -> Float[Tensor, "B H Lq d"]:
    """`torch.nn.functional.scaled_dot_product_attention`, the engine that torch has for the device.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        terms: The scheme's terms, of which there is nothing but the scale.
        mask: Who may attend to whom, broadcastable to [B, H, Lq, Lk]; causality is that of the
            positions, and comes in addition.
        positions: Where queries and keys stand.
        dropout: Probability of dropping a weight, by torch's global generator.

    Returns:
        The output.
    """
    assert terms == Terms(terms.scale), "there is nothing but the scale"
    (B, H, Lq, _), (G, Lk), d = q.shape, k.shape[1:3], v.shape[-1]
    # Torch aligns causality to the first key; for as many queries as keys that is the last one too.
    # A condition, not an expression: compilers know lengths by letter.
    aligned = False
    if positions.causal and mask is None and positions.query is None and Lq == Lk:
        aligned = True
    else:
        sizes = Sizes(B=B, H=H, G=G, Lq=Lq, Lk=Lk, d=d)
        mask = attention_mask(mask, positions, sizes, q.device)
    # Scaled here: torch would multiply what it has masked, and -inf times 0 is no number.
    return scaled_dot_product_attention(
        terms.scale * q,
        k,
        v,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=aligned,
        scale=1.0,
        enable_gqa=G < H,
    )
