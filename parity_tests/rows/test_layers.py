"""What every scheme promises inside a layer, on every row of the roster: in PyTorch, where a layer
takes milliseconds. What is traced for export runs for each scheme's first row, what Flax compiles
for the representative rows in `parity_tests/twins`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import relpos_jax
import relpos_jax.nnx
import relpos_torch
from parity_tests.rows.calls import every_row, first_rows, needs, self_attention
from parity_tests.twins.twin import passes, unchecked
from relpos import oracle
from relpos.oracle import Estimate
from relpos.parity import compare, reference
from relpos.parity.cases import Case, LayerInputs
from relpos.parity.roster import Row
from relpos.parity.sides.torch_side import to_numpy, to_tensor
from relpos.weights import Weights, load_into, to_flax, to_torch
from relpos_jax.initialise import initializer as jax_initializer


def torch_layer(inputs: LayerInputs, dtype: torch.dtype = torch.float64) -> Any:
    """A layer with the weights of the inputs."""
    layer = relpos_torch.RelativeAttention.from_settings(inputs.settings, dtype=dtype)
    return load_into(layer, Weights({"": inputs.settings}, inputs.tensors))


def decoding(row: Row) -> tuple[Case, LayerInputs, Any, Estimate]:
    """The row's decoding case, its inputs, the layer, and what the full run gives."""
    needs(row, "decoding")
    case = row.decode_case
    inputs = case.layer_inputs("float64")
    full = reference.result("decode", case, "float64").output
    return case, inputs, torch_layer(inputs), full


def some(estimate: Estimate, *index: Any) -> Estimate:
    """A part of an estimate."""
    return Estimate(estimate.value[index], estimate.budget[index])


@every_row
def test_one_token_at_a_time_equals_the_full_run(row: Row) -> None:
    case, inputs, layer, full = decoding(row)
    cache, outputs = layer.init_cache(case.B, case.Lq), []
    for x in to_tensor(inputs.x).split(1, 1):
        output, cache = layer(x, cache=cache)
        outputs.append(output)
    passes(compare(full, to_numpy(torch.cat(outputs, 1).detach())))


@every_row
def test_rows_of_other_lengths_decode_as_if_alone_several_tokens_at_once(row: Row) -> None:
    # Prompts of 2 and 4 tokens, padded with what must not matter; then two tokens and one.
    case, inputs, layer, full = decoding(row)
    x = to_tensor(inputs.x)
    prompt = x[:, :4].clone()
    prompt[0, 2:] = 77.0
    lengths = torch.tensor([2, 4])
    output, cache = layer(prompt, cache=layer.init_cache(case.B, case.Lq), lengths=lengths)
    assert (output[0, 2:] == layer.out.bias).all()
    found = [[output[b, :n]] for b, n in enumerate(lengths.tolist())]
    at = lengths.tolist()
    for step in (2, 1):
        new = torch.stack([x[b, at[b] : at[b] + step] for b in range(case.B)])
        output, cache = layer(new, cache=cache)
        for b in range(case.B):
            found[b].append(output[b])
            at[b] += step
    assert cache.next_position.tolist() == at == [5, 7]
    for b in range(case.B):
        got = to_numpy(torch.cat(found[b]).detach())
        passes(compare(some(full, b, slice(at[b])), got))


@every_row
def test_a_row_may_begin_later_than_others(row: Row) -> None:
    case, inputs, layer, full = decoding(row)
    x = to_tensor(inputs.x)
    cache = layer.init_cache(case.B, case.Lq)
    output, cache = layer(x[:, :2], cache=cache, lengths=torch.tensor([0, 2]))
    assert (output[0] == layer.out.bias).all()
    passes(compare(some(full, 1, slice(2)), to_numpy(output[1].detach())))
    output, cache = layer(x[:, :2], cache=cache, lengths=torch.tensor([2, 0]))
    passes(compare(some(full, 0, slice(2)), to_numpy(output[0].detach())))


@every_row
def test_dropping_old_tokens_moves_none_of_the_others(row: Row) -> None:
    case, inputs, layer, _ = decoding(row)
    L = case.Lq
    x = to_tensor(inputs.x)
    _, cache = layer(x[:, :-1], cache=layer.init_cache(case.B, L))
    got, cache = layer(x[:, -1:], cache=cache.drop(2))
    assert cache.length.tolist() == [L - 2] * case.B
    assert cache.next_position.tolist() == [L] * case.B
    kept = (np.arange(L) >= 2)[None, None, None]
    expected = oracle.layer(
        inputs.settings,
        inputs.tensors,
        inputs.x[:, -1:],
        inputs.x,
        mask=kept,
        query_positions=np.array([L - 1]),
        key_positions=np.arange(L),
    ).output
    passes(compare(expected, to_numpy(got.detach())))


@every_row
def test_a_layer_cast_to_half_is_the_layer_built_in_half(row: Row) -> None:
    # Nothing but the weights may be rounded: no position, angle, slope or bucket is stored in it.
    case = row.layer_cases[1]
    inputs = case.layer_inputs("bfloat16")
    x, mask = to_tensor(inputs.x), to_tensor(inputs.mask)
    built = torch_layer(inputs, torch.bfloat16)
    cast = torch_layer(inputs, torch.float32).to(torch.bfloat16)
    there_and_back = torch_layer(inputs, torch.float32).to(torch.bfloat16).float()
    assert torch.equal(cast(x, mask=mask), built(x, mask=mask))
    single = torch_layer(inputs, torch.float32)
    assert torch.equal(there_and_back(x.float(), mask=mask), single(x.float(), mask=mask))


@first_rows
def test_a_layer_in_half_has_all_its_gradients_in_half(row: Row) -> None:
    inputs = row.layer_cases[1].layer_inputs("bfloat16")
    layer, x = torch_layer(inputs, torch.bfloat16), to_tensor(inputs.x).requires_grad_()
    output = layer(x, mask=to_tensor(inputs.mask))
    output.backward(to_tensor(inputs.cotangent))
    gradients = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    for tensor in (output, *gradients):
        assert tensor is not None
        assert tensor.dtype is torch.bfloat16
        assert tensor.isfinite().all()


@first_rows
def test_fresh_parameters_are_what_the_settings_state(row: Row) -> None:
    inputs = row.layer_cases[1].layer_inputs("float32")
    fresh = relpos_torch.RelativeAttention.from_settings(inputs.settings)
    for p in inputs.settings.parameters():
        name = p.name.replace(".kernel", ".weight")
        found = to_numpy(fresh.get_parameter(name).detach())
        if p.init.std > 0:
            # A uniform ends where it says; a normal is not seen seven deviations out.
            reach = p.init.scale if p.init.kind == "uniform" else 7 * p.init.std
            assert 0 < np.abs(found).max() <= np.float32(reach), p.name
        else:
            exact = p.init.draw(np.random.default_rng(0), p.shape).astype(np.float32)
            np.testing.assert_array_equal(found.reshape(p.shape), exact)
            if exact.any():
                drawn = jax_initializer(p.init)(jax.random.key(0), p.shape, jnp.dtype("float32"))
                np.testing.assert_array_equal(drawn, exact)


@every_row
def test_a_layer_stores_what_it_learns_and_nothing_else(row: Row) -> None:
    inputs = row.layer_cases[1].layer_inputs("float32")
    layer = torch_layer(inputs, torch.float32)
    assert not list(layer.buffers())
    state = layer.state_dict()
    expected = to_torch(Weights({"": inputs.settings}, inputs.tensors))
    assert {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in expected.items()}
    assert set(state) == {name for name, _ in layer.named_parameters()}
    flax = nnx.eval_shape(
        lambda: relpos_jax.nnx.RelativeAttention.from_settings(inputs.settings, rngs=nnx.Rngs(0))
    )
    held = {".".join(map(str, path)): v for path, v in nnx.to_flat_state(nnx.state(flax))}
    assert {n: v.shape for n, v in held.items()} == {n: a.shape for n, a in inputs.tensors.items()}


@every_row
def test_a_layer_is_built_without_memory_and_filled_later(row: Row) -> None:
    inputs = row.layer_cases[1].layer_inputs("float32")
    weights = Weights({"": inputs.settings}, inputs.tensors)
    layer = relpos_torch.RelativeAttention.from_settings(inputs.settings, device="meta")
    assert all(p.is_meta for p in layer.parameters())
    layer.load_state_dict(to_torch(weights), assign=True)
    x, mask = to_tensor(inputs.x), to_tensor(inputs.mask)
    assert torch.equal(layer(x, mask=mask), torch_layer(inputs, torch.float32)(x, mask=mask))
    flax = nnx.eval_shape(
        lambda: relpos_jax.nnx.RelativeAttention.from_settings(inputs.settings, rngs=nnx.Rngs(0))
    )
    load_into(flax, weights)
    expected = nnx.traversals.flatten_mapping(to_flax(weights), sep=".")
    for path, parameter in nnx.to_flat_state(nnx.state(flax)):
        np.testing.assert_array_equal(parameter[...], expected[".".join(map(str, path))])


@first_rows
def test_a_torch_layer_exported_at_one_length_runs_at_others(row: Row) -> None:
    inputs = row.layer_cases[1].layer_inputs("float32")
    layer = torch_layer(inputs, torch.float32).eval()
    limits = row.scheme.position_limits
    longest = 9 if limits is None else limits[1] - limits[0] + 1
    lengths = {"x": {1: torch.export.Dim("L", min=2, max=longest)}}
    with unchecked():  # a symbolic length is no int to the check of annotations
        exported = torch.export.export(layer, (to_tensor(inputs.x),), dynamic_shapes=lengths)
    single = oracle.Precision.of("float32")
    for length in (2, longest):
        x = torch.randn(2, length, inputs.settings.embed_dim)
        truth = oracle.layer(inputs.settings, inputs.tensors, x.numpy(), precision=single).output
        passes(compare(truth, to_numpy(exported.module()(x).detach())))


def side(name: str) -> str:
    """Whether an input has an entry per query or per key."""
    return "q" if name.startswith("q") else "k"


@first_rows
def test_a_jax_program_exported_without_lengths_runs_at_all(row: Row) -> None:
    _, inputs = self_attention(row)

    def call(tokens: Any, params: Any) -> jax.Array:
        return relpos_jax.attention(**tokens, scheme=row.scheme, params=params, causal=True)

    params = {name: jnp.asarray(array) for name, array in inputs.params.items()}
    lengths = dict(zip(("q", "k"), jax.export.symbolic_shape("Lq, Lk"), strict=True))
    by_letter = {
        name: jax.ShapeDtypeStruct(
            (a.shape[0], lengths[side(name)], a.shape[1], a.shape[3]), a.dtype
        )
        for name, a in inputs.tokens.items()
    }
    with unchecked():  # nor is a symbolic length an int to the check of annotations
        program = jax.export.export(jax.jit(call))(by_letter, params)
    for a, b in ((7, 7), (3, 5), (1, 7), (1, 1), (5, 2)):
        kept = {"q": a, "k": b}
        part = {name: array[:, :, : kept[side(name)]] for name, array in inputs.tokens.items()}
        arrays = {name: jnp.asarray(array.swapaxes(1, 2)) for name, array in part.items()}
        got = program.call(arrays, params)
        expected = oracle.attention(row.scheme, inputs.params, **part, causal=True)
        passes(compare(expected.output, np.asarray(got).swapaxes(1, 2)))
