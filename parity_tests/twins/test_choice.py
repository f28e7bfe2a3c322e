"""Which kernel a call takes, and what is said about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from relpos import CoPE, NoPosition, RoPE, Scheme, SettingError, Shaw, XPos

PACKAGES = {"torch": relpos_torch, "jax": relpos_jax}


def explain(twin: Any, scheme: Scheme, L: int, **options: Any) -> Any:
    """Of a call with L queries and keys."""
    shape = (1, 1, L, 4) if twin.name == "torch" else (1, L, 1, 4)
    q = twin.array(np.ones(shape))
    return PACKAGES[twin.name].explain(q, q, q, scheme, **options)


@pytest.mark.parametrize(
    ("scheme", "L", "implementation", "kernel", "reason"),
    [
        (Shaw(2, 2), 5, "auto", "dense", "5 x 5 scores of a head are few"),
        (Shaw(2, 2), 600, "auto", "blockwise", "600 x 600 scores of a head are many"),
        (Shaw(2, 2), 5, "blockwise", "blockwise", "asked for by name"),
        (NoPosition(), 600, "dense", "dense", "asked for by name"),
        (CoPE(4), 600, "auto", "dense", "only dense counts places by the content"),
    ],
)
def test_the_kernel_is_named_with_its_reason(
    twin: Any, scheme: Scheme, L: int, implementation: str, kernel: str, reason: str
) -> None:
    choice = explain(twin, scheme, L, implementation=implementation)
    assert choice.kernel == kernel
    assert choice.reason.startswith(reason)


def test_torch_s_own_attention_serves_what_only_turns_queries_and_keys() -> None:
    q = torch.ones(1, 1, 600, 4)
    for scheme in (NoPosition(), RoPE("half")):
        assert relpos_torch.explain(q, q, q, scheme).kernel == "fused"
    # Its scores may be too large for the one number per row that torch keeps for the way back.
    assert relpos_torch.explain(q, q, q, XPos("half")).kernel == "blockwise"
    with pytest.raises(SettingError, match="positions go into queries and keys alone"):
        relpos_torch.explain(q, q, q, Shaw(2, 2), implementation="fused")


def test_what_cannot_be_served_is_refused_with_a_way_out(twin: Any) -> None:
    with pytest.raises(SettingError, match=r"no places counted by the content.*'dense'"):
        explain(twin, CoPE(4), 5, implementation="blockwise")
    with pytest.raises(SettingError, match="implementation names a kernel"):
        explain(twin, NoPosition(), 5, implementation="fast")
