"""Layouts: every array used once, every fault listed, every bit kept there and back."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parity_tests.weights.samples import (
    any_settings,
    bits,
    dtypes,
    random_bits,
    random_weights,
    settings_of,
)
from relpos import (
    AttentionSettings,
    NoPosition,
    RoPE,
    Shaw,
    WeightsError,
    Windowed,
)
from relpos.rotation import frequencies
from relpos.weights import (
    LAYOUTS,
    Drop,
    Entry,
    Layout,
    Split,
    Squeeze,
    Step,
    Transpose,
    convert,
    export,
    find_layouts,
    layers_in,
    read_settings,
)
from relpos.weights.audit import fingerprint
from relpos.weights.neutral import Array
from relpos.weights.steps import source_axes

OURS = ("relpos-torch", "relpos-nnx", "relpos-linen")
VITS_LAYOUTS = ("vits", "vits-transformers")
#: A width that is H * d, so that all kernels are square and a missing transpose changes no shape.
SQUARE = AttentionSettings(embed_dim=6, num_heads=2, scheme=Windowed(left=2, right=2))

SIZES = {"embed": 5, "heads": 3, "head_dim": 2}


@pytest.mark.parametrize(
    ("steps", "shape", "axes"),
    [
        ((Transpose((2, 0, 1)),), (3, 2, 5), ("embed", "heads", "head_dim")),
        ((Split(0, ("heads", "head_dim")),), (6, 5), ("heads", "head_dim", "embed")),
        ((Squeeze(1),), (5, 1, 3), ("embed", "heads")),
        (
            (Squeeze(2), Transpose((1, 0)), Split(1, ("heads", "head_dim"))),
            (6, 5, 1),
            ("embed", "heads", "head_dim"),
        ),
    ],
    ids=str,
)
def test_steps_are_undone_and_tell_the_foreign_shape(
    steps: tuple[Step, ...], shape: tuple[int, ...], axes: tuple[str, ...]
) -> None:
    foreign = random_bits(shape, "float16", 3)
    array = foreign
    for step in steps:
        array = step.forward(array, SIZES)
    assert array.shape == tuple(SIZES[axis] for axis in axes)
    for step in reversed(steps):
        array = step.inverse(array, SIZES)
    assert array.tobytes() == foreign.tobytes()
    named = source_axes(steps, axes)
    assert tuple(int(np.prod([SIZES[name] for name in axis])) for axis in named) == shape


@given(any_settings(), any_settings(), dtypes, st.sampled_from(OURS), st.sampled_from(["", "m."]))
def test_neutral_to_ours_and_back_keeps_every_bit(
    first: AttentionSettings, second: AttentionSettings, dtype: str, layout: str, prefix: str
) -> None:
    layers = {"encoder.2": first, "encoder.10": second}
    weights = random_weights(layers, dtype)
    foreign, written = export(weights, layout, prefix=prefix)
    again, read = convert(foreign, layout, layers, prefix=prefix)
    assert again == weights
    assert written.count("used") == read.count("used") == len(weights.tensors)
    assert bits(export(again, layout, prefix=prefix)[0]) == bits(foreign)


@given(st.integers(0, 3), st.booleans(), st.booleans(), dtypes, st.sampled_from(VITS_LAYOUTS))
def test_neutral_to_vits_and_back_keeps_every_bit(
    reach: int, per_head: bool, bias: bool, dtype: str, layout: str
) -> None:
    scheme = Windowed(left=reach, right=reach, per_head=per_head)
    layers = {str(n): AttentionSettings(10, 2, scheme, bias=bias, causal=n > 0) for n in range(2)}
    weights = random_weights(layers, dtype)
    foreign, _ = export(weights, layout, prefix="enc.")
    assert convert(foreign, layout, layers, prefix="enc.")[0] == weights
    plain = read_settings(foreign, layout, num_heads=2, prefix="enc.")
    assert plain == {n: dataclasses.replace(s, causal=False) for n, s in layers.items()}


@given(any_settings(), st.sampled_from(OURS))
def test_settings_are_read_off_shapes_and_arguments(
    settings: AttentionSettings, layout: str
) -> None:
    # None and the number it stands for are the same layer; shapes give the shorter form.
    shorter = settings.head_dim is None or settings.embed_dim != (
        settings.num_heads * settings.head_dim
    )
    assume(shorter)
    foreign, _ = export(random_weights({"a.b": settings}), layout)
    told = settings.num_heads if layout == "relpos-torch" else None
    read = read_settings(
        foreign,
        layout,
        num_heads=told,
        scheme=settings.scheme,
        causal=settings.causal,
        dropout=settings.dropout,
        scale=settings.scale,
    )
    assert read == {"a.b": settings}


def test_square_kernels_are_transposed_for_torch() -> None:
    """D = H * d = 6: every kernel is square, so shapes alone would not show a missing transpose."""
    weights = random_weights(SQUARE, seed=5)
    torch_names, _ = export(weights, "relpos-torch")
    for name in ("query", "key", "value"):
        kernel = weights.tensors[f"{name}.kernel"]
        matrix = torch_names[f"{name}.weight"]
        assert matrix.tobytes() != kernel.tobytes()
        for h in range(2):
            for d in range(3):
                assert matrix[3 * h + d].tobytes() == kernel[:, h, d].tobytes()
    out, matrix = weights.tensors["out.kernel"], torch_names["out.weight"]
    for h in range(2):
        for d in range(3):
            assert matrix[:, 3 * h + d].tobytes() == out[h, d].tobytes()


@pytest.mark.parametrize("layout", VITS_LAYOUTS)
def test_vits_arrays_are_the_torch_ones_by_other_names(layout: str) -> None:
    weights = random_weights({"4": SQUARE})
    ours, _ = export(weights.layer("4"), "relpos-torch")
    theirs, _ = export(weights, layout)
    stem, names, tail = {
        "vits": ("attn_layers.4.", ("conv_q", "conv_k", "conv_v", "conv_o"), (1,)),
        "vits-transformers": (
            "layers.4.attention.",
            ("q_proj", "k_proj", "v_proj", "out_proj"),
            (),
        ),
    }[layout]
    expected = {stem + "emb_rel_k": ours["key_table"], stem + "emb_rel_v": ours["value_table"]}
    for own, name in zip(("query", "key", "value", "out"), names, strict=True):
        weight = ours[f"{own}.weight"]
        expected[f"{stem}{name}.weight"] = weight.reshape(*weight.shape, *tail)
        expected[f"{stem}{name}.bias"] = ours[f"{own}.bias"]
    assert bits(theirs) == bits(expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_shares_memory(layout: str) -> None:
    """A later write into a checkpoint changes no weights, nor the other way round."""
    settings = {"0": SQUARE}
    weights = random_weights(settings)
    foreign, _ = export(weights, layout)
    read, _ = convert(foreign, layout, settings)
    before = bits(read.tensors)
    for array in foreign.values():
        assert array.flags.writeable
        array[...] = 7
    assert bits(read.tensors) == before == bits(weights.tensors)


def _vits(prefix: str = "enc.") -> dict[str, Array]:
    layers = {"0": SQUARE, "1": SQUARE}
    return export(random_weights(layers), "vits", prefix=prefix)[0]


class TestFaults:
    def _fault(self, source: dict[str, Array], **changes: object) -> str:
        arguments = {"layout": "vits", "settings": SQUARE, "prefix": "enc.", **changes}
        with pytest.raises(WeightsError) as caught:
            convert(source, **arguments)  # type: ignore[arg-type]
        return str(caught.value)

    def test_all_are_listed_at_once(self) -> None:
        source = _vits()
        del source["enc.attn_layers.0.conv_q.weight"], source["enc.attn_layers.1.emb_rel_v"]
        source["enc.attn_layers.0.conv_k.weight"] = np.zeros((6, 6), np.float32)
        source["enc.attn_layers.1.conv_o.bias"] = np.zeros(6, np.int32)
        source["enc.attn_layers.1.conv_z.bias"] = np.zeros(6, np.float32)
        text = self._fault(source)
        assert (
            "missing: enc.attn_layers.0.conv_q.weight [6, 6, 1], "
            "enc.attn_layers.1.emb_rel_v [1, 5, 3]"
        ) in text
        assert "misshapen: enc.attn_layers.0.conv_k.weight [6, 6] for [6, 6, 1]" in text
        assert "mistyped: enc.attn_layers.1.conv_o.bias int32" in text
        assert "unexpected: enc.attn_layers.1.conv_z.bias [6]" in text

    def test_a_wrong_prefix_is_told_the_right_one(self) -> None:
        text = self._fault(_vits("model.enc."))
        assert "expected prefix 'model.enc.'" in text

    def test_another_reach_is_another_shape(self) -> None:
        settings = dataclasses.replace(SQUARE, scheme=Windowed(left=3, right=3))
        text = self._fault(_vits(), settings=settings)
        assert "enc.attn_layers.0.emb_rel_k [1, 5, 3] for [1, 7, 3]" in text

    def test_a_shared_table_is_no_table_per_head(self) -> None:
        """Sharing is a setting; a file that says otherwise is refused, never broadcast."""
        per_head = Windowed(left=2, right=2, per_head=True)
        assert sum(np.prod(p.shape) for p in SQUARE.scheme.parameters(2, 3)) == 2 * 5 * 3
        assert sum(np.prod(p.shape) for p in per_head.parameters(2, 3)) == 2 * 2 * 5 * 3
        text = self._fault(_vits(), settings=dataclasses.replace(SQUARE, scheme=per_head))
        assert "emb_rel_k [1, 5, 3] for [2, 5, 3]" in text

    @pytest.mark.parametrize(
        "scheme",
        [Shaw(left=2, right=2), Windowed(left=1, right=3), Windowed(left=2, right=2, values=False)],
        ids=["clipped instead of zero", "uneven", "keys only"],
    )
    def test_a_scheme_that_vits_does_not_mean(self, scheme: Shaw | Windowed) -> None:
        """These tables have VITS's shapes or a part of them, and are another function."""
        settings = dataclasses.replace(SQUARE, scheme=scheme)
        text = self._fault(_vits(), settings=settings)
        assert "another scheme: layer 0" in text or "one row per distance" in text
        with pytest.raises(WeightsError, match=r"another scheme|one row per distance"):
            export(random_weights({"0": settings}), "vits")

    def test_a_scheme_that_vits_has_no_place_for(self) -> None:
        settings = dataclasses.replace(SQUARE, scheme=RoPE("half", rotary_dim=2))
        with pytest.raises(WeightsError, match="another scheme"):
            export(random_weights({"0": settings}), "vits")

    def test_layers_of_vits_are_numbered(self) -> None:
        with pytest.raises(WeightsError, match="no number: layer 'first'"):
            export(random_weights({"first": SQUARE}), "vits")
        with pytest.raises(WeightsError, match="no number: layer ''"):
            export(random_weights(SQUARE), "vits")

    def test_a_layer_named_by_the_settings_and_absent(self) -> None:
        text = self._fault(_vits(), settings={"0": SQUARE, "1": SQUARE, "2": SQUARE})
        assert "enc.attn_layers.2.conv_q.weight [6, 6, 1]" in text

    def test_a_layer_present_and_not_named_by_the_settings(self) -> None:
        text = self._fault(_vits(), settings={"0": SQUARE})
        assert "unexpected: enc.attn_layers.1." in text
        assert text.count("enc.attn_layers.1.") == 10

    def test_an_unknown_layout(self) -> None:
        assert "'vitz'" in self._fault(_vits(), layout="vitz")

    def test_a_layout_names_everything_once(self) -> None:
        with pytest.raises(WeightsError, match=r"twice: query\.kernel"):
            Layout("x", "", (Entry("a", "query.kernel"), Entry("b", "query.kernel")))
        with pytest.raises(WeightsError, match="every source once"):
            Layout("x", "", (Entry("a", "query.kernel"), Entry("a", "key.kernel")))


class TestDropping:
    def test_what_stands_beside_the_attention_is_dropped_by_name(self) -> None:
        source = _vits()
        source["enc.norm_layers_1.0.gamma"] = np.ones(6, np.float32)
        source["enc.ffn_layers.1.conv_1.weight"] = np.ones((24, 6, 3), np.float32)
        source["dec.weight"] = np.ones(1)
        weights, audit = convert(source, "vits", SQUARE, prefix="enc.")
        assert len(weights.layers) == 2
        assert {row.source for row in audit.rows if row.use == "dropped"} == {
            "enc.norm_layers_1.0.gamma",
            "enc.ffn_layers.1.conv_1.weight",
        }
        assert audit.outside == ("dec.weight",)
        assert "2 dropped on purpose, 1 outside" in str(audit)

    def test_the_caller_may_drop_more(self) -> None:
        source = _vits() | {"enc.attn_layers.0.scales.x": np.ones(1)}
        with pytest.raises(WeightsError, match=r"unexpected: enc\.attn_layers\.0\.scales\.x"):
            convert(source, "vits", SQUARE, prefix="enc.")
        _, audit = convert(
            source, "vits", SQUARE, prefix="enc.", drop=["attn_layers.{layer}.scales.*"]
        )
        assert audit.count("dropped") == 1

    def test_a_drop_never_takes_what_a_parameter_needs(self) -> None:
        weights, _ = convert(_vits(), "vits", SQUARE, prefix="enc.", drop=["*"])
        assert len(weights.tensors) == 20


class TestBuffersThatRepeatTheSettings:
    """Rotary frequencies and index tables in older state dicts are no weights: checked, dropped."""

    SETTINGS = settings_of(RoPE("half", base=500.0))

    def _source(self, buffer: Array) -> dict[str, Array]:
        return {**export(random_weights(self.SETTINGS), "relpos-torch")[0], "inv_freq": buffer}

    @pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
    def test_the_right_frequencies_are_dropped(self, dtype: str) -> None:
        buffer = frequencies(500.0, 4).astype(np.dtype(dtype) if dtype[0] == "f" else "float32")
        if dtype == "bfloat16":
            buffer = buffer.astype(random_bits((1,), dtype, 0).dtype)
        weights, audit = convert(self._source(buffer), "relpos-torch", self.SETTINGS)
        assert weights == random_weights(self.SETTINGS)
        assert [row.source for row in audit.rows if row.use == "dropped"] == ["inv_freq"]

    @pytest.mark.parametrize(
        ("buffer", "message"),
        [
            (
                frequencies(10000.0, 4),
                "other frequencies than those of RoPE(layout='half', rotary_dim=None, base=500.0",
            ),
            (frequencies(500.0, 2), "[1] frequencies for [2]"),
        ],
    )
    def test_other_frequencies_are_another_function(self, buffer: Array, message: str) -> None:
        with pytest.raises(WeightsError, match=re.escape(f"contradicting: inv_freq: {message}")):
            convert(self._source(buffer), "relpos-torch", self.SETTINGS)

    def test_frequencies_without_a_rotation(self) -> None:
        settings = settings_of(NoPosition())
        source = export(random_weights(settings), "relpos-torch")[0]
        with pytest.raises(WeightsError, match="rotary frequencies in a layer with NoPosition"):
            convert({**source, "inv_freq": frequencies(500.0, 4)}, "relpos-torch", settings)

    def test_a_layout_may_check_any_buffer(self) -> None:
        def fault(array: Array, settings: AttentionSettings) -> str | None:
            steps = np.arange(array.shape[0])
            right = np.array_equal(array, steps[None, :] - steps[:, None] + 3)
            return None if right else "another index"

        ours = LAYOUTS["relpos-torch"]
        drop = Drop("{layer}.relative_position_index", "computed", check=fault)
        layout = dataclasses.replace(ours, name="indexed", drops=(drop,))
        weights = random_weights({"blocks.1": SQUARE})
        source, _ = export(weights, layout)
        index = np.add.outer(-np.arange(5), np.arange(5)) + 3
        name = "blocks.1.relative_position_index"
        assert convert({**source, name: index}, layout, SQUARE)[0] == weights
        with pytest.raises(WeightsError, match="another index"):
            convert({**source, name: index.T}, layout, SQUARE)
        with pytest.raises(WeightsError, match=r"unexpected: blocks\.7\.relative_position_index"):
            convert(
                {**source, "blocks.7.relative_position_index": index}, layout, {"blocks.1": SQUARE}
            )


class TestReadingSettings:
    SOURCE = export(random_weights({"": SQUARE}), "relpos-torch")[0]

    def test_what_weights_do_not_tell_is_asked_for(self) -> None:
        with pytest.raises(WeightsError, match="needs num_heads from the caller"):
            read_settings(self.SOURCE, "relpos-torch", scheme=SQUARE.scheme)
        with pytest.raises(WeightsError, match="needs scheme from the caller"):
            read_settings(self.SOURCE, "relpos-torch", num_heads=2)
        with pytest.raises(WeightsError, match="needs num_heads from the caller"):
            read_settings(_vits(), "vits", prefix="enc.")

    def test_heads_that_the_shapes_contradict(self) -> None:
        with pytest.raises(WeightsError, match=r"query\.weight is \[heads \* head_dim, embed\]"):
            read_settings(self.SOURCE, "relpos-torch", num_heads=4, scheme=SQUARE.scheme)
        flax = export(random_weights({"": SQUARE}), "relpos-nnx")[0]
        with pytest.raises(WeightsError, match=r"Got \[6, 2, 3\] with heads 3"):
            read_settings(flax, "relpos-nnx", num_heads=3, scheme=SQUARE.scheme)

    def test_grouped_key_heads_are_read_and_checked(self) -> None:
        """4 query heads, 2 key heads: the twin must not take H for both."""
        settings = AttentionSettings(8, 4, NoPosition(), num_kv_heads=2)
        source, _ = export(random_weights(settings), "relpos-torch")
        assert source["key.weight"].shape == (4, 8)
        arguments = {"num_heads": 4, "scheme": NoPosition()}
        assert read_settings(source, "relpos-torch", **arguments) == {"": settings}
        with pytest.raises(WeightsError, match=r"key\.weight"):
            read_settings(source, "relpos-torch", num_kv_heads=4, **arguments)

    def test_a_layer_without_its_query(self) -> None:
        source = {n: a for n, a in self.SOURCE.items() if n != "query.weight"}
        with pytest.raises(WeightsError, match=r"without query\.weight"):
            read_settings(source, "relpos-torch", num_heads=2, scheme=SQUARE.scheme)

    def test_vits_tells_its_window_itself(self) -> None:
        read = read_settings(_vits(), "vits", num_heads=2, prefix="enc.")
        assert read["1"].scheme == Windowed(left=2, right=2)
        with pytest.raises(WeightsError, match=r"means Windowed\(left=2"):
            read_settings(_vits(), "vits", num_heads=2, prefix="enc.", scheme=Shaw(2, 2))

    def test_vits_tables_of_an_even_number_of_rows(self) -> None:
        source = _vits()
        source["enc.attn_layers.0.emb_rel_k"] = np.zeros((1, 4, 3), np.float32)
        with pytest.raises(WeightsError, match="one row per distance from -w to w"):
            read_settings(source, "vits", num_heads=2, prefix="enc.")

    def test_vits_without_tables_has_no_positions(self) -> None:
        source = {n: a for n, a in _vits().items() if "emb_rel" not in n}
        read = read_settings(source, "vits", num_heads=2, prefix="enc.")
        assert read["0"].scheme == NoPosition()
        assert convert(source, "vits", read, prefix="enc.")[0].layers == read


def test_layers_are_found_in_the_order_of_their_numbers() -> None:
    names = [f"enc.attn_layers.{n}.conv_q.bias" for n in (10, 9, 1)]
    assert layers_in(names, "vits", prefix="enc.") == ("1", "9", "10")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_recognised_by_its_names(layout: str) -> None:
    prefix = "text.enc." if layout in VITS_LAYOUTS else ""
    names = export(random_weights({"0": SQUARE, "1": SQUARE}), layout, prefix=prefix)[0]
    assert (layout, prefix, ("0", "1")) in find_layouts(names)
    incomplete = [name for name in names if not re.search("conv_o|out", name)]
    assert find_layouts(incomplete) == []


def test_the_audit_names_every_array_once() -> None:
    source = _vits() | {"dec.weight": np.ones(1)}
    _, audit = convert(source, "vits", SQUARE, prefix="enc.")
    assert sorted([row.source for row in audit.rows] + [*audit.outside]) == sorted(source)
    row = next(row for row in audit.rows if row.target == "1.query.kernel")
    assert dataclasses.asdict(row) == {
        "source": "enc.attn_layers.1.conv_q.weight",
        "shape": (6, 6, 1),
        "dtype": "float32",
        "sha256": fingerprint(source["enc.attn_layers.1.conv_q.weight"]),
        "use": "used",
        "steps": ("squeeze 2", "transpose", "split 1 into (H, d)"),
        "target": "1.query.kernel",
        "target_shape": (6, 2, 3),
    }


@given(st.data())
def test_any_change_of_a_mapping_is_refused_or_harmless(data: st.DataObject) -> None:
    """Names removed, renamed, doubled and reshaped at will: no wrong weights ever come out."""
    source = _vits()
    right, _ = convert(source, "vits", SQUARE, prefix="enc.")
    name = data.draw(st.sampled_from([*source]))
    other = data.draw(st.sampled_from([*source]) | st.text(max_size=8))
    change = data.draw(st.sampled_from(["remove", "rename", "double", "reshape", "retype"]))
    if change in ("remove", "rename"):
        value = source.pop(name)
        if change == "rename":
            source[other] = value
    elif change == "double":
        assume(other not in source)
        source[other] = source[name]
    elif change == "reshape":
        source[name] = source[name].reshape(-1, 1)
    else:
        source[name] = source[name].view(np.int32)
    try:
        weights, audit = convert(source, "vits", SQUARE, prefix="enc.")
    except WeightsError:
        return
    assert weights == right
    assert change == "double" or other == name
    assert change != "double" or other in audit.outside
