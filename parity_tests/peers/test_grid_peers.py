"""Swin, Swin v2, BEiT and SAM as transformers has them, whole attention modules.

Their projections are set to permutations of channels with signs, which no rounding touches: q, k
and v are known exactly. All but Swin v2 take their softmax in float32 whatever they are given, and
Swin v2 its coordinates, so they are judged there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BeitConfig, SamVisionConfig, SwinConfig, Swinv2Config
from transformers.models.beit import modeling_beit as beit
from transformers.models.sam import modeling_sam as sam
from transformers.models.swin import modeling_swin as swin
from transformers.models.swinv2 import modeling_swinv2 as swin_v2

from parity_tests.twins.twin import draw, draw_params, fails, passes
from relpos import BEiT, Decomposed2D, Scheme, Swin2D, SwinV2, oracle
from relpos.oracle import Precision
from relpos.parity import compare

B, H, d = 2, 3, 4
D = H * d
SINGLE = Precision.of("float32")
Arrays = dict[str, NDArray[Any]]


def dealing(seed: int) -> NDArray[np.float32]:
    """A permutation of channels with signs, [D, D]."""
    rng = np.random.default_rng(seed)
    return (np.eye(D)[rng.permutation(D)] * rng.choice([-1, 1], D)).astype(np.float32)


DEALT = [dealing(seed) for seed in (1, 2, 3)]


def q_k_v(x: NDArray[Any]) -> list[NDArray[np.float64]]:
    """What the dealt projections make of x [B, L, D]: three of [B, H, L, d]."""
    return [(x.astype(np.float64) @ dealt.T).reshape(B, -1, H, d).swapaxes(1, 2) for dealt in DEALT]


def single(scheme: Scheme) -> Arrays:
    """The scheme's parameters in float32."""
    return draw_params(scheme, H, d, np.float32)


def load(module: Any, weights: dict[str, NDArray[Any]]) -> Any:
    """The module with these weights, and zero for every other."""
    state = {name: torch.zeros_like(tensor) for name, tensor in module.state_dict().items()}
    given = {name: torch.tensor(np.ascontiguousarray(array)) for name, array in weights.items()}
    assert all(state[name].shape == tensor.shape for name, tensor in given.items())
    module.load_state_dict(state | given)
    return module


def judge(
    twin: Any,
    scheme: Scheme,
    params: Arrays,
    qkv: list[NDArray[np.float64]],
    output: torch.Tensor,
    theirs: dict[str, tuple[torch.Tensor, Any]],
    *,
    scale: float | None = None,
) -> None:
    """The peer's output, and gradients of its tables, against the oracle; then the twin's output.

    Args:
        twin: One of ours.
        scheme: What the peer should be.
        params: Its parameters, ours.
        qkv: What the peer attends with.
        output: The peer's output [B, L, D].
        theirs: For each of our parameters, the peer's, and from its gradient to ours.
        scale: The factor on <q, k>.
    """
    cotangent = draw(9, *output.shape, dtype=np.float32)
    heads = cotangent.reshape(B, -1, H, d).swapaxes(1, 2).astype(np.float64)
    exact = {name: table.astype(np.float64) for name, table in params.items()}
    truth = oracle.attention(scheme, exact, *qkv, scale=scale, cotangent=heads, precision=SINGLE)
    output.backward(torch.tensor(cotangent))
    got = output.detach().numpy().reshape(B, -1, H, d).swapaxes(1, 2)
    passes(compare(truth.output, got))
    for name, (tensor, ours) in theirs.items():
        assert tensor.grad is not None
        passes(compare(truth.gradients[name], ours(tensor.grad.numpy())))
    options = {} if scale is None else {"scale": scale}
    expected = oracle.attention(scheme, exact, *qkv, scale=scale).output
    passes(compare(expected, twin.attention(scheme, exact, *qkv, **options)))
    # With its tables read from the other end it would not be.
    flipped = {name: np.flip(table, 1) for name, table in exact.items()}
    fails(compare(oracle.attention(scheme, flipped, *qkv, scale=scale).output, got))


def reversed_table(table: NDArray[Any]) -> NDArray[Any]:
    """From [H, N] to the published [N, H], and back: transposed, and the rows the other way."""
    return table.T[::-1] if table.shape[0] == H else table[::-1].T


@pytest.mark.parametrize("window", [(2, 3), (3, 3)])
def test_swin_in_transformers(twin: Any, window: tuple[int, int]) -> None:
    scheme = Swin2D(*window)
    params = single(scheme)
    config = SwinConfig(attn_implementation="eager")
    module = swin.SwinAttention(config, D, H, 3)
    # The module takes square windows only, its bias any.
    module.relative_position_bias = swin.SwinRelativePositionBias(H, window)
    names = ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"]
    table = "relative_position_bias.relative_position_bias_table"
    weights = dict(zip(names, [*DEALT, np.eye(D)], strict=True))
    load(module, {**weights, table: reversed_table(params["bias_table"])})
    x = draw(5, B, window[0] * window[1], D, dtype=np.float32)
    output = module(torch.tensor(x))[0]
    theirs = module.relative_position_bias.relative_position_bias_table
    judge(twin, scheme, params, q_k_v(x), output, {"bias_table": (theirs, reversed_table)})


@pytest.mark.parametrize(
    "scheme",
    [
        SwinV2(2, 3),
        SwinV2(3, 2, pretrained_height=4, pretrained_width=5),
    ],
)
def test_swin_v2_in_transformers(twin: Any, scheme: SwinV2) -> None:
    params = single(scheme)
    trained = [scheme.pretrained_height or 0, scheme.pretrained_width or 0]
    config = Swinv2Config()
    module = swin_v2.Swinv2SelfAttention(config, D, H, (scheme.height, scheme.width), trained)
    names = ["query.weight", "key.weight", "value.weight"]
    mlp = "continuous_position_bias_mlp."
    logit_scale = np.log(np.array([1.0, 3.0, 10.0], np.float32))
    load(
        module,
        {
            **dict(zip(names, DEALT, strict=True)),
            mlp + "0.weight": params["hidden_kernel"][0].T,
            mlp + "0.bias": params["hidden_bias"][0],
            mlp + "2.weight": params["output_kernel"],
            "logit_scale": logit_scale.reshape(H, 1, 1),
        },
    )
    # Halves, four to a head: their length is 1, so that normalising rounds nothing.
    x = 0.5 * np.sign(draw(5, B, scheme.height * scheme.width, D, dtype=np.float32))
    output = module(torch.tensor(x))[0]
    q, k, v = q_k_v(x)
    q = q * np.exp(logit_scale.astype(np.float64))[:, None, None]
    first, _, last = module.continuous_position_bias_mlp
    theirs = {
        "hidden_kernel": (first.weight, lambda grad: grad.T[None]),
        "hidden_bias": (first.bias, lambda grad: grad[None]),
        "output_kernel": (last.weight, lambda grad: grad),
    }
    judge(twin, scheme, params, [q, k, v], output, theirs, scale=1.0)


def beit_table(table: NDArray[Any]) -> NDArray[Any]:
    """As `reversed_table`, but the three entries of the class token stay last."""
    if table.shape[0] == H:
        return np.concatenate([reversed_table(table[:, :-3]), table[:, -3:].T])
    return np.concatenate([reversed_table(table[:-3]), table[-3:].T], 1)


def test_beit_in_transformers(twin: Any) -> None:
    # A square: for others theirs swaps height and width before it interpolates, to the same size.
    scheme = BEiT(3, 3)
    params = single(scheme)
    config = BeitConfig(
        hidden_size=D,
        num_attention_heads=H,
        image_size=3,
        patch_size=1,
        attn_implementation="eager",
    )
    bias = beit.BeitRelativePositionBias(config)
    load(bias, {"relative_position_bias_table": beit_table(params["bias_table"])})
    names = ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"]
    weights = dict(zip(names, [*DEALT, np.eye(D)], strict=True))
    module = load(beit.BeitAttention(config), weights)
    x = draw(5, B, 10, D, dtype=np.float32)
    output = module(torch.tensor(x), attention_mask=bias((3, 3)))[0]
    theirs = bias.relative_position_bias_table
    judge(twin, scheme, params, q_k_v(x), output, {"bias_table": (theirs, beit_table)})


def sam_module(height: int, width: int, params: Arrays) -> Any:
    """SAM's attention with these tables."""
    config = SamVisionConfig(hidden_size=D, num_attention_heads=H, image_size=1, patch_size=1)
    module = sam.SamVisionAttention(config, window_size=height)
    module.rel_pos_w = torch.nn.Parameter(torch.zeros(2 * width - 1, d))
    return load(
        module,
        {
            "qkv.weight": np.concatenate(DEALT),
            "proj.weight": np.eye(D),
            "rel_pos_h": params["row_table"][0, ::-1],
            "rel_pos_w": params["column_table"][0, ::-1],
        },
    )


def test_sam_in_transformers(twin: Any) -> None:
    scheme = Decomposed2D(2, 3)
    params = single(scheme)
    module = sam_module(2, 3, params)
    x = draw(5, B, 2, 3, D, dtype=np.float32)
    output = module(torch.tensor(x))[0].reshape(B, 6, D)
    theirs = {
        "row_table": (module.rel_pos_h, lambda grad: grad[None, ::-1]),
        "column_table": (module.rel_pos_w, lambda grad: grad[None, ::-1]),
    }
    qkv = q_k_v(x.reshape(B, 6, D))
    judge(twin, scheme, params, qkv, output, theirs)
    scaled = oracle.attention(
        Decomposed2D(2, 3, scaled=True),
        {name: table.astype(np.float64) for name, table in params.items()},
        *qkv,
        precision=SINGLE,
    )
    got = output.detach().numpy().reshape(B, -1, H, d).swapaxes(1, 2)
    fails(compare(scaled.output, got))


@pytest.mark.parametrize(
    ("query_grid", "key_grid"), [((4, 6), (2, 3)), ((2, 2), (4, 6)), ((4, 2), (2, 6))]
)
def test_pooled_grids_as_mvit_counts_them(
    twin: Any, query_grid: tuple[int, int], key_grid: tuple[int, int]
) -> None:
    height, width = (max(sizes) for sizes in zip(query_grid, key_grid, strict=True))
    scheme = Decomposed2D(height, width)
    params = draw_params(scheme, 1, d)
    q = draw(5, 1, query_grid[0] * query_grid[1], d)
    k = draw(6, key_grid[0] * key_grid[1], d)
    # With keys pooled s to 1 their last s - 1 rows are never read, and of ours the last ones.
    shifts = [max(fine // coarse, 1) - 1 for fine, coarse in zip(query_grid, key_grid, strict=True)]
    theirs = [
        torch.tensor(np.roll(table[0, ::-1], -shift, 0))
        for table, shift in zip(params.values(), shifts, strict=True)
    ]
    module = sam_module(2, 2, single(Decomposed2D(2, 2)))
    got = module.get_decomposed_rel_pos(torch.tensor(q), *theirs, query_grid, key_grid)
    at, others = scheme.pooled_positions(*query_grid), scheme.pooled_positions(*key_grid)
    truth = oracle.relative_scores(
        scheme,
        {name: table[0] for name, table in params.items()},
        q[0],
        k,
        query_positions=at,
        key_positions=others,
    )
    passes(compare(truth.output, got.numpy().reshape(len(at), len(others))))
    exact = [a[None, None] for a in (q[0], k, draw(7, len(k), d))]
    options = {"query_positions": at, "key_positions": others}
    expected = oracle.attention(scheme, params, *exact, **options).output
    passes(compare(expected, twin.attention(scheme, params, *exact, **options)))
