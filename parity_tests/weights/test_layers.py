"""Weights in and out of the layers of both frameworks, and across."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from flax import linen, nnx
from flax.core import freeze

import relpos_jax.linen
import relpos_jax.nnx
import relpos_torch
from parity_tests.weights.samples import SCHEMES, bits, random_weights, settings_of
from relpos import T5, AttentionSettings, NoPosition, RoPE, Scheme, Shaw, WeightsError, Windowed
from relpos.weights import Weights, load_into, save, to_flax, to_neutral, to_torch
from relpos.weights.framework_arrays import array_from_jax, array_from_torch

DTYPES = ("bfloat16", "float16", "float32", "float64")
SETTINGS = settings_of(Shaw(left=3, right=1), dropout=0.1)

every_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=str)
#: Every scheme and, by turns, every dtype twice.
every_scheme_and_dtype = pytest.mark.parametrize(
    ("scheme", "dtype"), [*zip(SCHEMES, 2 * DTYPES, strict=True)], ids=str
)


def torch_layer(settings: AttentionSettings, dtype: str = "float32") -> Any:
    return relpos_torch.RelativeAttention.from_settings(settings, dtype=getattr(torch, dtype))


def nnx_layer(settings: AttentionSettings, dtype: str = "float32") -> Any:
    return relpos_jax.nnx.RelativeAttention.from_settings(
        settings, param_dtype=getattr(jax.numpy, dtype), rngs=nnx.Rngs(3)
    )


def linen_pair(settings: AttentionSettings, dtype: str = "float32") -> Any:
    module = relpos_jax.linen.RelativeAttention.from_settings(
        settings, param_dtype=getattr(jax.numpy, dtype)
    )
    x = jax.ShapeDtypeStruct((2, 5, settings.embed_dim), dtype)
    return module, module.lazy_init(jax.random.key(3), x, deterministic=True)


LAYERS = {"torch": torch_layer, "nnx": nnx_layer}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def state_of(layer: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every parameter of a layer, to see whether anything changed."""
    if isinstance(layer, torch.nn.Module):
        return bits({n: array_from_torch(t) for n, t in layer.state_dict().items()})
    flat = nnx.to_flat_state(nnx.state(layer, nnx.Param))
    return bits({".".join(path): array_from_jax(p[...]) for path, p in flat})


class TestThereAndBack:
    @every_layer
    @every_scheme_and_dtype
    def test_a_layer_gives_back_what_it_was_given(
        self, make: Any, scheme: Scheme, dtype: str
    ) -> None:
        weights = random_weights(settings_of(scheme), dtype)
        layer = make(settings_of(scheme), dtype)
        assert load_into(layer, weights) is layer
        assert to_neutral(layer) == weights

    @every_scheme_and_dtype
    def test_linen_variables_give_back_what_they_were_given(
        self, scheme: Scheme, dtype: str
    ) -> None:
        module = relpos_jax.linen.RelativeAttention.from_settings(settings_of(scheme))
        weights = random_weights(settings_of(scheme), dtype)
        assert to_neutral((module, {"params": to_flax(weights)})) == weights

    @every_scheme
    def test_fresh_layers_hold_what_the_settings_state(self, scheme: Scheme) -> None:
        """Learned arrays and no buffer, no frequency, no index besides."""
        settings = settings_of(scheme)
        expected = {p.name: p.shape for p in settings.parameters()}
        for source in (torch_layer(settings), nnx_layer(settings), linen_pair(settings)):
            weights = to_neutral(source)
            assert {name: array.shape for name, array in weights.tensors.items()} == expected
            assert weights.settings == settings

    def test_many_layers_have_their_paths_before_their_names(self) -> None:
        layers = {"encoder.0": SETTINGS, "encoder.1": settings_of(T5())}
        weights = random_weights(layers)
        state = to_torch(weights)
        tree = to_flax(weights)
        assert state["encoder.1.query.weight"].shape == (24, 7)
        assert tree["encoder"]["0"]["query"]["kernel"].shape == (7, 6, 4)
        assert to_neutral(state, layers) == weights
        assert to_neutral(tree, layers) == weights
        assert to_neutral({"params": tree}, layers) == weights

    def test_a_file_is_a_source(self, tmp_path: Path) -> None:
        save(tmp_path / "w.safetensors", random_weights(SETTINGS))
        layer = load_into(torch_layer(SETTINGS), tmp_path / "w.safetensors")
        assert to_neutral(layer) == to_neutral(str(tmp_path / "w.safetensors"))

    def test_a_frozen_and_boxed_tree_is_a_source(self) -> None:
        weights = random_weights(SETTINGS)
        boxed = jax.tree.map(
            lambda array: linen.LogicallyPartitioned(array, (None,) * array.ndim),
            to_flax(weights),
        )
        assert to_neutral(freeze({"params": boxed}), SETTINGS) == weights

    def test_an_nnx_state_is_a_source(self) -> None:
        layer = load_into(nnx_layer(SETTINGS), random_weights(SETTINGS))
        state = nnx.state(layer, nnx.Param)
        assert to_neutral(state, SETTINGS) == random_weights(SETTINGS)
        assert to_neutral(nnx.to_pure_dict(state), SETTINGS) == random_weights(SETTINGS)


class TestAcross:
    @every_scheme
    def test_torch_and_nnx_exchange_weights(self, scheme: Scheme) -> None:
        one = load_into(torch_layer(settings_of(scheme)), random_weights(settings_of(scheme)))
        two = load_into(nnx_layer(settings_of(scheme)), one)
        assert to_neutral(two) == to_neutral(one)
        back = load_into(torch_layer(settings_of(scheme)), two)
        assert state_of(back) == state_of(one)

    def test_linen_to_torch(self) -> None:
        module, variables = linen_pair(SETTINGS)
        layer = load_into(torch_layer(SETTINGS), (module, variables))
        assert to_neutral(layer) == to_neutral((module, variables))

    @pytest.mark.parametrize("kv_heads", [None, 2])
    def test_projections_mean_the_same(self, kv_heads: int | None) -> None:
        """D = H * d = 8 and whole numbers: every sum is exact, and a kernel that is taken for its
        transpose, or key heads for query heads, shows."""
        settings = AttentionSettings(8, 4, NoPosition(), num_kv_heads=kv_heads)
        random = np.random.default_rng(7)
        weights = Weights(
            {"": settings},
            {p.name: random.integers(-9, 9, p.shape).astype("f") for p in settings.parameters()},
        )
        one = load_into(torch_layer(settings), weights)
        two = load_into(nnx_layer(settings), weights)
        x = random.integers(-9, 9, (3, 8)).astype("f")
        for name, heads in (("query", 4), ("key", kv_heads or 4), ("value", kv_heads or 4)):
            kernel, bias = (weights.tensors[f"{name}.{part}"] for part in ("kernel", "bias"))
            expected = np.einsum("ld,dhw->lhw", x, kernel) + bias
            ours = getattr(one, name)(torch.tensor(x)).detach().numpy()
            np.testing.assert_array_equal(ours.reshape(3, heads, 2), expected)
            np.testing.assert_array_equal(getattr(two, name)(x), expected)
        y = random.integers(-9, 9, (3, 4, 2)).astype("f")
        expected = np.einsum("lhw,hwd->ld", y, weights.tensors["out.kernel"])
        expected += weights.tensors["out.bias"]
        ours = one.out(torch.tensor(y.reshape(3, 8))).detach().numpy()
        np.testing.assert_array_equal(ours, expected)
        np.testing.assert_array_equal(two.out(y), expected)

    def test_flax_own_attention_takes_the_tree(self) -> None:
        """The names and shapes are those of flax: its own layer accepts and returns them."""
        settings = AttentionSettings(8, 4, NoPosition())
        weights = random_weights(settings)
        theirs = nnx.MultiHeadAttention(4, 8, decode=False, rngs=nnx.Rngs(0))
        own = nnx.to_pure_dict(nnx.state(theirs, nnx.Param))
        tree = to_flax(weights)
        assert jax.tree.map(np.shape, tree) == jax.tree.map(np.shape, own)


class TestMemory:
    def test_a_write_into_torch_changes_nothing_else(self) -> None:
        weights = random_weights(SETTINGS)
        layer = load_into(torch_layer(SETTINGS), weights)
        neutral, tree, state = to_neutral(layer), to_flax(layer), to_torch(layer)
        before = bits(weights.tensors)
        twin = load_into(nnx_layer(SETTINGS), layer)
        with torch.no_grad():
            for tensor in (*layer.parameters(), *state.values()):
                tensor.zero_()
        assert bits(neutral.tensors) == before == bits(weights.tensors)
        assert bits(to_neutral(twin).tensors) == before
        assert to_neutral(tree, SETTINGS) == weights

    def test_a_write_into_numpy_changes_no_jax_array(self) -> None:
        """Large and aligned enough that jax could have kept numpy's memory."""
        settings = AttentionSettings(256, 4, NoPosition(), bias=False)
        tensors = {p.name: np.ones(p.shape, "f") for p in settings.parameters()}
        tree = to_flax(Weights({"": settings}, tensors))
        for array in tensors.values():
            array[...] = 0
        assert all(float(leaf.min()) == 1 for leaf in jax.tree.leaves(tree))

    def test_jax_arrays_survive_a_write_into_the_tensors_made_from_them(self) -> None:
        layer = load_into(nnx_layer(SETTINGS), random_weights(SETTINGS))
        for tensor in to_torch(layer).values():
            tensor.zero_()
        assert to_neutral(layer) == random_weights(SETTINGS)


DIFFERENT = {
    "scheme": settings_of(Windowed(left=3, right=1)),
    "causal": settings_of(SETTINGS.scheme, causal=True),
    "scale": settings_of(SETTINGS.scheme, scale=1.0),
    "bias": settings_of(SETTINGS.scheme, bias=False),
    "num_heads": settings_of(SETTINGS.scheme, num_heads=4),
    "num_kv_heads": settings_of(SETTINGS.scheme, num_kv_heads=3),
    "head_dim": settings_of(SETTINGS.scheme, head_dim=2),
    "embed_dim": settings_of(SETTINGS.scheme, embed_dim=5),
}


class TestRefusals:
    @every_layer
    @pytest.mark.parametrize("name", DIFFERENT)
    def test_another_function_is_refused_by_its_settings(self, make: Any, name: str) -> None:
        """Shapes alone would let some of these through: scheme, causal and scale."""
        layer = make(SETTINGS)
        before = state_of(layer)
        with pytest.raises(WeightsError, match=f"different: .*{name} "):
            load_into(layer, random_weights(DIFFERENT[name]))
        assert state_of(layer) == before

    @every_layer
    def test_all_differences_are_listed(self, make: Any) -> None:
        other = settings_of(T5(), causal=True, bias=False)
        with pytest.raises(WeightsError) as caught:
            load_into(make(SETTINGS), random_weights(other))
        for name in ("scheme T5", "bias False", "causal True", "scale 1.0"):
            assert name in str(caught.value.got)

    @every_layer
    def test_another_dropout_or_way_of_saying_the_same_is_no_difference(self, make: Any) -> None:
        short = AttentionSettings(8, 4, NoPosition())
        long = AttentionSettings(
            8, 4, NoPosition(), num_kv_heads=4, head_dim=2, scale=2**-0.5, dropout=0.4
        )
        layer = load_into(make(short), random_weights(long))
        assert to_neutral(layer).tensors.keys() == random_weights(short).tensors.keys()
        assert layer.settings == short

    @every_layer
    @pytest.mark.parametrize(("wide", "narrow"), [("float64", "float32"), ("float16", "bfloat16")])
    def test_bits_are_not_lost_unasked(self, make: Any, wide: str, narrow: str) -> None:
        layer = make(SETTINGS, narrow)
        before = state_of(layer)
        weights = random_weights(SETTINGS, wide)
        with pytest.raises(WeightsError, match=r"narrowed: .*query\."):
            load_into(layer, weights)
        assert state_of(layer) == before

    @every_layer
    def test_a_wider_layer_keeps_its_dtype(self, make: Any) -> None:
        small = random_weights(SETTINGS).astype("float32")
        ones = Weights(small.layers, {n: np.ones_like(a) for n, a in small.tensors.items()}).astype(
            random_weights(SETTINGS, "bfloat16").tensors["out.bias"].dtype
        )
        layer = load_into(make(SETTINGS, "float64"), ones)
        assert {dtype for dtype, _, _ in state_of(layer).values()} == {"float64"}
        assert to_neutral(layer) == ones.astype("float64")

    def test_a_state_dict_with_a_key_missing_leaves_the_layer_alone(self) -> None:
        layer = torch_layer(SETTINGS)
        before = state_of(layer)
        state = to_torch(random_weights(SETTINGS))
        del state["value_table"]
        state["value.tables"] = state["key_table"]
        with pytest.raises(WeightsError) as caught:
            load_into(layer, state)
        assert "missing: value_table [1, 5, 4]" in str(caught.value)
        assert "unexpected: value.tables [1, 5, 4]" in str(caught.value)
        assert state_of(layer) == before

    def test_a_tree_with_a_key_missing_or_misshapen_leaves_the_layer_alone(self) -> None:
        """Flax's own update takes both without a word."""
        layer = nnx_layer(SETTINGS)
        before = state_of(layer)
        tree = to_flax(random_weights(SETTINGS))
        del tree["query"]["bias"]
        tree["key_table"] = tree["key_table"][:, :3]
        with pytest.raises(WeightsError) as caught:
            load_into(layer, tree)
        assert "missing: params/query/bias [6, 4]" in str(caught.value)
        assert "misshapen: params/key_table [1, 3, 4] for [1, 5, 4]" in str(caught.value)
        assert state_of(layer) == before

    @every_layer
    def test_a_layer_that_was_changed_by_hand(self, make: Any) -> None:
        layer = make(SETTINGS)
        if isinstance(layer, torch.nn.Module):
            layer.key_table = torch.nn.Parameter(torch.zeros(1, 3, 4))
        else:
            layer.key_table = nnx.Param(jax.numpy.zeros((1, 3, 4), "f"))
        with pytest.raises(WeightsError, match=r"misshapen: key_table \[1, 5, 4\] for \[1, 3, 4\]"):
            load_into(layer, random_weights(SETTINGS))

    @every_layer
    def test_several_layers_do_not_go_into_one(self, make: Any) -> None:
        with pytest.raises(WeightsError, match=r"weights\.layer\(path\)"):
            load_into(make(SETTINGS), random_weights({"a": SETTINGS, "b": SETTINGS}))

    def test_a_linen_module_is_told_what_to_do(self) -> None:
        module, _ = linen_pair(SETTINGS)
        with pytest.raises(WeightsError, match="to_flax"):
            load_into(module, random_weights(SETTINGS))
        with pytest.raises(WeightsError, match="pair"):
            to_neutral(module)

    @pytest.mark.parametrize("source", [3, None, object(), torch.nn.Linear(3, 5), nnx.Rngs(0)])
    def test_something_else(self, source: object) -> None:
        with pytest.raises(WeightsError, match="weights come from"):
            to_neutral(source)
        with pytest.raises(WeightsError, match="weights come from"):
            load_into(source, random_weights(SETTINGS))

    def test_settings_go_with_trees_alone(self) -> None:
        with pytest.raises(WeightsError, match="does not tell its settings"):
            to_neutral(to_torch(random_weights(SETTINGS)))
        with pytest.raises(WeightsError, match="carries its own"):
            to_neutral(random_weights(SETTINGS), SETTINGS)

    def test_a_tree_that_names_one_array_twice(self) -> None:
        tree = to_flax(random_weights(SETTINGS))
        tree["query/bias"] = tree["query"]["bias"]
        with pytest.raises(WeightsError, match="params/query/bias twice"):
            to_neutral(tree, SETTINGS)

    def test_jax_without_float64_does_not_round_in_silence(self) -> None:
        with jax.enable_x64(False), pytest.raises(WeightsError, match="jax_enable_x64"):
            to_flax(random_weights(SETTINGS, "float64"))

    def test_a_layer_without_data(self) -> None:
        layer = relpos_torch.RelativeAttention.from_settings(SETTINGS, device="meta")
        with pytest.raises(WeightsError, match="dense tensor with data"):
            to_neutral(layer)
        with pytest.raises(WeightsError, match=r"without data: .*on device meta"):
            load_into(layer, random_weights(SETTINGS))


def test_rope_layouts_are_different_functions_with_equal_shapes() -> None:
    half, interleaved = settings_of(RoPE("half")), settings_of(RoPE("interleaved"))
    with pytest.raises(WeightsError, match="different: scheme RoPE"):
        load_into(torch_layer(half), random_weights(interleaved))


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [("torch", "torch", "to_torch"), ("jax", "jax", "to_flax")],
)
def test_a_missing_framework_is_named_with_its_extra(
    package: str, extra: str, call: str, tmp_path: Path
) -> None:
    save(tmp_path / "w.safetensors", random_weights(SETTINGS))
    code = (
        "import sys\nfrom relpos import NoPosition\n"
        f"sys.modules[{package!r}] = None\n"
        "from relpos import weights\n"
        "try:\n"
        f"    weights.{call}({str(tmp_path / 'w.safetensors')!r})\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name, error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"{package} this needs the package {package}")
    assert f"relpos[{extra}]" in result.stdout


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_one_framework_is_enough(package: str) -> None:
    """Weights go into a torch layer without jax, and into a flax layer without torch."""
    other = {"torch": "jax", "jax": "torch"}[package]
    use = {
        "torch": "import relpos_torch\n"
        "layer = relpos_torch.RelativeAttention(6, 2, NoPosition())\n",
        "jax": "import relpos_jax.nnx\nfrom flax import nnx\n"
        "layer = relpos_jax.nnx.RelativeAttention(6, 2, NoPosition(), rngs=nnx.Rngs(0))\n",
    }[package]
    code = (
        "import sys\nfrom relpos import NoPosition\n"
        f"sys.modules[{other!r}] = None\n"
        f"{use}"
        "from relpos.weights import load_into, to_neutral\n"
        "weights = to_neutral(layer)\n"
        "assert to_neutral(load_into(layer, weights)) == weights\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_parameters_tied_to_one_another_are_not_filled_twice() -> None:
    settings = AttentionSettings(8, 4, NoPosition())
    layer = relpos_torch.RelativeAttention.from_settings(settings)
    fresh = to_neutral(relpos_torch.RelativeAttention.from_settings(settings))
    layer.key.weight = layer.query.weight
    before = layer.query.weight.detach().clone()
    with pytest.raises(WeightsError, match=r"tied to one another.*query\.weight and key\.weight"):
        load_into(layer, fresh)
    assert torch.equal(layer.query.weight, before)
