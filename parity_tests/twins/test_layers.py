"""The layers: what they accept, what they refuse, what they hold, how they start."""

from __future__ import annotations

import copy
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import relpos_jax.linen
import relpos_jax.nnx
import relpos_torch
from parity_tests.twins.twin import draw, draw_weights, fails, passes, unchecked
from relpos import (
    T5,
    AttentionSettings,
    MusicTransformer,
    NoPosition,
    RoPE,
    Scheme,
    SettingError,
    ShapeError,
    Shaw,
    Windowed,
    oracle,
)
from relpos.parity import compare

SCHEMES = [NoPosition(), Shaw(2, 1), Windowed(1, 2, per_head=True), T5(8, 20), RoPE("half")]
B, L, Lk, D = 2, 5, 7, 12


def settings_of(scheme: Scheme, **fields: Any) -> AttentionSettings:
    """Three heads, one of keys."""
    return AttentionSettings(D, 3, scheme, num_kv_heads=1, **fields)


def build(kind: str, **fields: Any) -> Any:
    """A fresh layer of one of the three kinds."""
    if kind == "torch":
        return relpos_torch.RelativeAttention(**fields)
    if kind == "nnx":
        return relpos_jax.nnx.RelativeAttention(**fields, rngs=nnx.Rngs(0))
    return relpos_jax.linen.RelativeAttention(**fields)


KINDS = pytest.mark.parametrize("kind", ["torch", "nnx", "linen"])


@KINDS
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"embed_dim": 13}, "embed_dim must be divisible by num_heads"),
        ({"num_kv_heads": 2}, "num_heads must be divisible by num_kv_heads"),
        ({"num_heads": 0}, "num_heads counts something"),
        ({"head_dim": 2.5}, "AttentionSettings.head_dim must have its declared type"),
        ({"dropout": 1.0}, "dropout is the probability"),
        ({"scale": 0.0}, "scale is the factor"),
        ({"causal": "yes"}, "AttentionSettings.causal must have its declared type"),
        ({"scheme": "shaw"}, "scheme must be one of relpos.SCHEMES"),
        ({"scheme": RoPE("half", rotary_dim=6)}, "RoPE rotates whole pairs inside the head"),
        ({"implementation": "fast"}, "implementation names a kernel"),
    ],
)
def test_impossible_settings_are_refused_when_the_layer_is_built(
    kind: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message), unchecked():
        build(kind, **{"embed_dim": D, "num_heads": 3, "scheme": Shaw(2, 1), **fields})


def test_inputs_that_cannot_be_right_are_refused(twin: Any) -> None:
    settings = settings_of(Shaw(2, 1))
    layer = twin.layer(settings, draw_weights(settings), eager=True)
    x, other = draw(1, B, L, D), draw(2, B, Lk, D)
    at, others = np.arange(L), np.arange(Lk)
    cache = layer.init_cache(B, L)
    wrong: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        (r"this looks like channels first \[B, D, L\]", (x.swapaxes(1, 2),), {}),
        (r"x has three axes \[B, L, D\] with D=12", (draw(1, B, L, 11),), {}),
        (r"key_value has three axes", (x, draw(1, B, Lk, 11)), {}),
        (r"cross-attention with Shaw needs the positions of both", (x, other), {}),
        (r"positions given, key_positions missing", (x, other), {"positions": at}),
        (r"key_positions belong to key_value", (x,), {"key_positions": at}),
        (r"lengths say how many tokens", (x,), {"lengths": np.full(B, L)}),
        (r"a cache holds the keys of self-attention", (x, other), {"cache": cache}),
        (r"a cache knows the positions", (x,), {"positions": at, "cache": cache}),
        (r"a mask must have four axes", (x,), {"mask": np.ones((1, 1, L, L + 1), bool)}),
        (r"a mask must have four axes", (x,), {"mask": np.ones((B, L), bool)}),
        (
            r"a mask must have four axes.* expected \[2, 3, 5, 6\]",
            (x,),
            {"cache": layer.init_cache(B, L + 1), "mask": np.ones((1, 1, L, L), bool)},
        ),
        (
            r"q and k agree in B",
            (x, draw(2, 3, Lk, D)),
            {"positions": at, "key_positions": others},
        ),
    ]
    for message, inputs, options in wrong:
        with pytest.raises(ShapeError, match=message), unchecked():
            layer(*inputs, **options)


@pytest.mark.parametrize("scheme", SCHEMES[:2], ids=lambda scheme: scheme.name)
def test_cross_attention_counts_from_a_common_origin(twin: Any, scheme: Scheme) -> None:
    settings = settings_of(scheme)
    weights, x, other = draw_weights(settings), draw(1, B, L, D), draw(2, B, Lk, D)
    layer = twin.layer(settings, weights)
    at, others = np.arange(L) + 3, np.arange(Lk)
    got = layer(x, other, positions=at, key_positions=others)
    expected = oracle.layer(
        settings, weights, x, other, query_positions=at, key_positions=others
    ).output
    passes(compare(expected, got))
    moved = layer(x, other, positions=at - 3, key_positions=others)
    (passes if scheme == NoPosition() else fails)(compare(expected, moved))


def test_cross_attention_without_positions_needs_none(twin: Any) -> None:
    settings = settings_of(NoPosition())
    weights, x, other = draw_weights(settings), draw(1, B, L, D), draw(2, B, Lk, D)
    got = twin.layer(settings, weights)(x, other)
    passes(compare(oracle.layer(settings, weights, x, other).output, got))


def test_one_instance_serves_every_length(twin: Any) -> None:
    settings = settings_of(MusicTransformer(3), causal=True)
    weights = draw_weights(settings)
    layer = twin.layer(settings, weights)
    for length in (5, 17, 1, 5):
        x = draw(length, B, length, D)
        passes(compare(oracle.layer(settings, weights, x).output, layer(x)))


def test_a_head_width_of_its_own_and_no_biases(twin: Any) -> None:
    settings = AttentionSettings(D, 5, Shaw(2, 1), head_dim=3, bias=False, scale=0.7)
    weights, x = draw_weights(settings), draw(1, B, L, D)
    passes(compare(oracle.layer(settings, weights, x).output, twin.layer(settings, weights)(x)))


@KINDS
def test_a_layer_holds_its_learned_arrays_and_nothing_else(kind: str) -> None:
    layer = build(kind, embed_dim=D, num_heads=3, scheme=Shaw(2, 1), num_kv_heads=1)
    expected = {p.name: p.shape for p in settings_of(Shaw(2, 1)).parameters()}
    if kind == "torch":
        state = layer.state_dict()
        assert {name.replace(".weight", ".kernel") for name in state} == set(expected)
        assert state["query.weight"].shape == (12, 12)
        assert state["key.weight"].shape == (4, 12)
        assert state["key_table"].shape == (1, 4, 4)
        return
    if kind == "nnx":
        tree = nnx.to_pure_dict(nnx.state(layer))
    else:
        tree = nn.unbox(layer.init(jax.random.key(0), jnp.zeros((1, 2, D), jnp.float32)))["params"]
    flat = jax.tree.leaves_with_path(tree)
    got = {".".join(str(key.key) for key in path): leaf.shape for path, leaf in flat}
    assert got == expected


def test_flax_parameters_carry_the_logical_names_of_their_axes() -> None:
    axes = {p.name: p.axes for p in settings_of(Shaw(2, 1)).parameters()}
    layer = build("nnx", embed_dim=D, num_heads=3, scheme=Shaw(2, 1), num_kv_heads=1)
    for path, variable in nnx.to_flat_state(nnx.state(layer)):
        assert variable.get_metadata()["out_sharding"] == axes[".".join(map(str, path))]
    linen = build("linen", embed_dim=D, num_heads=3, scheme=Shaw(2, 1), num_kv_heads=1)
    boxed = linen.init(jax.random.key(0), jnp.zeros((1, 2, D), jnp.float32))["params"]
    for name, names in axes.items():
        leaf = boxed
        for part in name.split("."):
            leaf = leaf[part]
        assert leaf.names == names


@pytest.mark.parametrize("scheme", SCHEMES[1:4], ids=lambda scheme: scheme.name)
@KINDS
def test_fresh_parameters_have_the_stated_spread(kind: str, scheme: Scheme) -> None:
    # Large enough for the standard deviation of the sample to be near: n entries of a normal give
    # it within 5 / sqrt(2n) at odds of a million to one; a uniform less.
    wide = {Shaw(2, 1): Shaw(97, 101), Windowed(1, 2, per_head=True): Windowed(51, 53)}
    scheme = wide.get(scheme, T5(512, 4096))
    torch.manual_seed(0)
    layer = build(kind, embed_dim=64, num_heads=4, scheme=scheme)
    if kind == "linen":
        variables = layer.init(jax.random.key(1), jnp.zeros((1, 2, 64), jnp.float32))
        layer = nn.unbox(variables)["params"]
    for parameter in AttentionSettings(64, 4, scheme).parameters():
        value = layer
        name = parameter.name.replace(".kernel", ".weight") if kind == "torch" else parameter.name
        for part in name.split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        array = np.asarray(value.detach() if kind == "torch" else value[...])
        spread = 5.0 / np.sqrt(2 * array.size)
        assert abs(array.std() - parameter.init.std) <= spread * parameter.init.std, name
        assert abs(array.mean()) <= 5.0 / np.sqrt(array.size) * parameter.init.std, name
        assert (array == 0).all() == (parameter.init.kind == "zeros"), name


@KINDS
def test_dropout_drops_only_in_training_and_keeps_the_mean(kind: str) -> None:
    length = 64
    fields = {"embed_dim": D, "num_heads": 3, "scheme": Shaw(2, 1), "dropout": 0.25}
    layer = build(kind, **fields)
    x = draw(1, B, length, D, dtype=np.float32)
    if kind == "torch":
        inputs = torch.tensor(x)
        torch.manual_seed(1)
        first, second = layer(inputs), layer(inputs)
        torch.manual_seed(1)
        again = layer(inputs)
        calm = layer.eval()(inputs)
        first, second, again, calm = (t.detach().numpy() for t in (first, second, again, calm))
    elif kind == "nnx":
        inputs = jnp.asarray(x)
        twin = copy.deepcopy(layer)
        first, second, again = layer(inputs), layer(inputs), twin(inputs)
        layer.eval()
        calm = layer(inputs)
    else:
        inputs = jnp.asarray(x)
        variables = layer.init(jax.random.key(0), inputs, deterministic=True)
        keys = jax.random.split(jax.random.key(1))
        first, second, again = (
            layer.apply(variables, inputs, deterministic=False, rngs={"dropout": key})
            for key in (keys[0], keys[1], keys[0])
        )
        calm = layer.apply(variables, inputs, deterministic=True)
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)
    assert (first != calm).all()
    np.testing.assert_array_equal(calm, np.asarray(calm))
    # What is kept is scaled up: averaged over all tokens the difference is noise around zero.
    difference = np.asarray(first, np.float64) - np.asarray(calm)
    noise = difference.std() / np.sqrt(B * length)
    assert (abs(difference.mean((0, 1))) <= 6 * noise).all()


@KINDS
def test_no_dropout_needs_no_random_numbers(kind: str) -> None:
    layer = build(kind, embed_dim=D, num_heads=3, scheme=Shaw(2, 1))
    x = draw(1, B, L, D, dtype=np.float32)
    if kind == "torch":
        before = torch.get_rng_state()
        layer(torch.tensor(x))
        assert torch.equal(before, torch.get_rng_state())
    elif kind == "nnx":
        assert layer.rngs is None
    else:
        variables = layer.init(jax.random.key(0), jnp.asarray(x))
        layer.apply(variables, jnp.asarray(x))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@KINDS
def test_the_output_has_the_dtype_of_the_layer(kind: str, dtype: str) -> None:
    fields = {"embed_dim": D, "num_heads": 3, "scheme": RoPE("half"), "causal": True}
    x = draw(1, B, L, D, dtype=np.float32)
    if kind == "torch":
        layer = relpos_torch.RelativeAttention(**fields).to(getattr(torch, dtype))
        out = layer(torch.tensor(x).to(getattr(torch, dtype)))
        assert str(out.dtype) == f"torch.{dtype}"
        out.sum().backward()
        assert all(p.grad.dtype == out.dtype for p in layer.parameters())
        return
    inputs = jnp.asarray(x).astype(dtype)
    if kind == "nnx":
        layer = relpos_jax.nnx.RelativeAttention(
            **fields, dtype=dtype, param_dtype=dtype, rngs=nnx.Rngs(0)
        )
        assert layer(inputs).dtype == dtype
    else:
        layer = relpos_jax.linen.RelativeAttention(**fields, dtype=dtype, param_dtype=dtype)
        assert layer.apply(layer.init(jax.random.key(0), inputs), inputs).dtype == dtype


def test_an_input_of_another_dtype_than_the_torch_layers_is_refused_by_name() -> None:
    layer = relpos_torch.RelativeAttention(D, 3, Shaw(2, 1))
    with pytest.raises(ShapeError, match=r"Got torch\.float64; expected torch\.float32"):
        layer(torch.tensor(draw(1, B, L, D)))


def test_half_precision_computation_over_float32_parameters() -> None:
    layer = relpos_jax.nnx.RelativeAttention(
        D, 3, Shaw(2, 1), dtype=jnp.bfloat16, param_dtype=jnp.float32, rngs=nnx.Rngs(0)
    )
    x = jnp.asarray(draw(1, B, L, D, dtype=np.float32))
    assert layer(x).dtype == jnp.bfloat16
    assert layer.key_table.dtype == jnp.float32
    torch_layer = relpos_torch.RelativeAttention(D, 3, Shaw(2, 1))
    with torch.autocast("cpu", torch.bfloat16):
        out = torch_layer(torch.tensor(np.asarray(x)))
    assert out.dtype == torch.bfloat16
    assert torch_layer.key_table.dtype == torch.float32


def test_a_model_cast_to_half_keeps_its_angles() -> None:
    # Only rounding of inputs and parameters separates the two: a position or a frequency in
    # bfloat16 would turn far positions somewhere else.
    settings = settings_of(RoPE("half"))
    tensors = {name: a.astype("float32") for name, a in draw_weights(settings).items()}
    layer = relpos_torch.RelativeAttention.from_settings(settings).to(torch.bfloat16)
    from relpos.weights import Weights, load_into, to_neutral

    load_into(layer, Weights({"": settings}, tensors).astype("bfloat16"))
    x = torch.tensor(draw(1, 1, L, D, dtype=np.float32)).to(torch.bfloat16)
    at = np.array([0, 257, 2049, 4095, 100_003])
    got = layer(x, positions=torch.tensor(at)).detach().float().numpy()
    exact = to_neutral(layer).astype("float64").tensors
    expected = oracle.layer(
        settings,
        exact,
        x.double().numpy(),
        query_positions=at,
        key_positions=at,
        precision=oracle.Precision.of("bfloat16"),
    ).output
    passes(compare(expected, got))


@pytest.mark.parametrize("dropout", [1.0, -0.2, float("nan")])
def test_no_other_number_passes_for_a_probability(twin: Any, dropout: float) -> None:
    q = draw(1, 1, 1, 3, 4)
    with pytest.raises(SettingError, match="dropout is the probability"):
        twin.attention(NoPosition(), {}, q, q, q, dropout=dropout)


def test_parameters_that_are_no_real_numbers_are_refused(twin: Any) -> None:
    q, table = draw(1, 1, 1, 3, 4), np.ones((1, 8), np.int32)
    with pytest.raises(ShapeError, match="params hold real floating numbers"):
        twin.attention(T5(8, 20), {"bias_table": table}, q, q, q)
