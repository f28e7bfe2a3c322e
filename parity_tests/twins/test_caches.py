"""Decoding through a cache equals the full run, whatever the chunks, padding or evictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import relpos_jax.nnx
import relpos_torch
from parity_tests.twins.twin import JaxTwin, draw, draw_weights, passes, unchecked
from relpos import (
    T5,
    AttentionSettings,
    DistanceError,
    NoPosition,
    RoPE,
    ShapeError,
    Shaw,
    oracle,
)
from relpos.parity import compare

# Every row of the roster decodes in `parity_tests/rows`; these are tests of the caches.
SCHEMES = [Shaw(2, 1), RoPE("half")]
B, L, C, D = 2, 7, 11, 12


def settings_of(scheme: Any) -> AttentionSettings:
    """Grouped heads, causal, no biases: a padded token contributes exactly nothing."""
    return AttentionSettings(D, 3, scheme, num_kv_heads=1, causal=True, bias=False)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("chunks", [(2, 2, 1, 2), (4, 3)])
def test_chunks_equal_the_full_run(twin: Any, scheme: Any, chunks: tuple[int, ...]) -> None:
    settings = settings_of(scheme)
    weights, x = draw_weights(settings), draw(5, B, L, D)
    layer = twin.layer(settings, weights)
    expected = oracle.layer(settings, weights, x).output
    cache, outputs, start = layer.init_cache(B, C), [], 0
    for length in chunks:
        output, cache = layer(x[:, start : start + length], cache=cache)
        outputs.append(output)
        start += length
    passes(compare(expected, np.concatenate(outputs, 1)))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_rows_of_different_lengths_equal_each_row_alone(twin: Any, scheme: Any) -> None:
    # The prompt is padded on the right: 2 and 4 real tokens, then single steps. Padding is neither
    # stored nor counted, so the next tokens stand at positions 2 and 4.
    settings = settings_of(scheme)
    weights, x = draw_weights(settings), draw(5, B, L, D)
    layer = twin.layer(settings, weights)
    prompt, lengths = x[:, :4].copy(), np.array([2, 4])
    prompt[0, 2:] = 77.0
    first, cache = layer(prompt, cache=layer.init_cache(B, C), lengths=lengths)
    assert twin.numpy(cache.next_position).tolist() == [2, 4]
    outputs = [[first[0, :2]], [first[1, :4]]]
    assert (first[0, 2:] == 0.0).all()
    for step in range(3):
        token = np.stack([x[0, 2 + step], x[1, 4 + step]])[:, None]
        output, cache = layer(token, cache=cache)
        for row in range(B):
            outputs[row].append(output[row])
    for row, total in ((0, 5), (1, 7)):
        expected = oracle.layer(settings, weights, x[row : row + 1, :total]).output
        got = np.concatenate(outputs[row])[None]
        passes(compare(expected, got))


def test_a_last_chunk_padded_to_its_full_size_adds_no_keys(twin: Any) -> None:
    settings = settings_of(Shaw(2, 1))
    layer = twin.layer(settings, draw_weights(settings))
    _, cache = layer(draw(5, B, 3, D), cache=layer.init_cache(B, C))
    _, cache = layer(draw(6, B, 3, D), cache=cache, lengths=np.array([1, 3]))
    assert twin.numpy(cache.length).tolist() == [4, 6]


def test_a_left_padded_row_equals_the_row_alone(twin: Any) -> None:
    for scheme in SCHEMES:
        settings = settings_of(scheme)
        weights, x = draw_weights(settings), draw(5, B, L, D)
        layer = twin.layer(settings, weights)
        padding = np.array([0, 3])
        positions = np.arange(L) - padding[:, None]
        mask = (positions >= 0)[:, None, None, :]
        got = layer(x, positions=positions, mask=mask)
        expected = oracle.layer(settings, weights, x[1:, 3:]).output
        passes(compare(expected, got[1:, 3:]))


def test_evicting_old_tokens_moves_no_position(twin: Any) -> None:
    # Two of six tokens are dropped; the next one still stands at position 6.
    settings = settings_of(RoPE("half"))
    weights, x = draw_weights(settings), draw(5, B, L, D)
    layer = twin.layer(settings, weights)
    _, cache = layer(x[:, :6], cache=layer.init_cache(B, 6))
    cache = cache.drop(2)
    got, cache = layer(x[:, 6:], cache=cache)
    assert twin.numpy(cache.length).tolist() == [5, 5]
    assert twin.numpy(cache.next_position).tolist() == [7, 7]
    mask = np.ones((1, 1, 1, 7), bool)
    mask[..., :2] = False
    at = np.array([6])
    full = np.arange(7)
    expected = oracle.layer(
        settings, weights, x[:, 6:], x, mask=mask, query_positions=at, key_positions=full
    ).output
    passes(compare(expected, got))


def test_all_zero_keys_keep_their_positions(twin: Any) -> None:
    settings = settings_of(T5(8, 20, bidirectional=False))
    weights = draw_weights(settings)
    weights["key.kernel"] = np.zeros_like(weights["key.kernel"])
    x = draw(5, B, L, D)
    layer = twin.layer(settings, weights)
    first, cache = layer(x[:, :4], cache=layer.init_cache(B, C))
    second, _ = layer(x[:, 4:], cache=cache)
    expected = oracle.layer(settings, weights, x).output
    passes(compare(expected, np.concatenate([first, second], 1)))


def test_a_full_cache_refuses_more_and_says_how_many_it_holds(twin: Any) -> None:
    settings = settings_of(Shaw(2, 1))
    layer = twin.layer(settings, draw_weights(settings), eager=True)
    _, cache = layer(draw(5, B, 4, D), cache=layer.init_cache(B, 5))
    with pytest.raises(
        ShapeError, match=r"Got \[4, 4\] tokens stored, \[2, 2\] new; expected at most 5"
    ):
        layer(draw(6, B, 2, D), cache=cache)
    with pytest.raises(ShapeError, match="has room for its new tokens, 0 <= lengths <= 1"):
        layer(draw(6, B, 1, D), cache=cache, lengths=np.array([2, 0]))
    with pytest.raises(ShapeError, match="new keys fit the cache"):
        layer(draw(6, 3, 1, D), cache=cache)
    with pytest.raises(ShapeError, match="lengths have one entry per row"):
        layer(draw(6, B, 1, D), cache=cache, lengths=np.array([1]))


def test_a_row_without_room_is_not_a_number_where_lengths_cannot_be_seen() -> None:
    layer = relpos_jax.nnx.RelativeAttention(D, 3, NoPosition(), causal=True, rngs=nnx.Rngs(0))
    step = nnx.jit(lambda layer, x, cache, lengths: layer(x, cache=cache, lengths=lengths))
    x = jnp.asarray(draw(5, B, 4, D, dtype=np.float32))
    cache = layer.init_cache(B, 5)
    _, cache = step(layer, x, cache, jnp.array([4, 1]))
    output, _ = step(layer, x, cache, jnp.array([2, 2]))
    assert np.isnan(output[0, :2]).all()
    assert np.isfinite(output[1, :2]).all()


def test_a_table_that_may_not_clip_is_checked_while_decoding(twin: Any) -> None:
    settings = settings_of(Shaw(3, 0, clip=False))
    layer = twin.layer(settings, draw_weights(settings), eager=True)
    _, cache = layer(draw(5, B, 4, D), cache=layer.init_cache(B, C))
    with pytest.raises(DistanceError, match="Got distance -4"):
        layer(draw(6, B, 1, D), cache=cache)
    output, _ = layer(draw(6, B, 1, D), cache=cache.drop(1))
    assert np.isfinite(output).all()


def test_distances_that_cannot_be_seen_poison_only_the_pairs_beyond_the_table() -> None:
    settings = settings_of(Shaw(3, 0, clip=False))
    weights, x = draw_weights(settings), draw(5, B, 5, D)
    compiled = JaxTwin().layer(settings, weights)
    output, cache = compiled(x[:, :4], cache=compiled.init_cache(B, C))
    passes(compare(oracle.layer(settings, weights, x[:, :4]).output, output))
    output, _ = compiled(x[:, 4:], cache=cache)
    assert np.isnan(output).all()


def test_twenty_decoding_steps_are_one_trace() -> None:
    layer = relpos_jax.nnx.RelativeAttention(D, 3, Shaw(2, 0), causal=True, rngs=nnx.Rngs(0))
    traces = 0

    @nnx.jit
    def step(layer: Any, x: Any, cache: Any) -> Any:
        nonlocal traces
        traces += 1
        return layer(x, cache=cache)

    cache = layer.init_cache(B, 20)
    for n in range(20):
        _, cache = step(layer, jnp.asarray(draw(n, B, 1, D, dtype=np.float32)), cache)
    assert traces == 1
    assert cache.next_position.tolist() == [20, 20]


def test_lengths_padded_to_one_size_are_one_trace() -> None:
    layer = relpos_jax.nnx.RelativeAttention(D, 3, Shaw(2, 1), rngs=nnx.Rngs(0))
    traces = 0

    @nnx.jit
    def call(layer: Any, x: Any, mask: Any) -> Any:
        nonlocal traces
        traces += 1
        return layer(x, mask=mask)

    x = draw(5, B, 64, D, dtype=np.float32)
    for length in (33, 34, 50, 64):
        real = np.arange(64) < length
        padded = (np.where(real[:, None], x, np.float32(padding)) for padding in (0.0, 77.0))
        outputs = [np.asarray(call(layer, one, real[None, None, None])) for one in padded]
        outputs = [output[:, :length] for output in outputs]
        np.testing.assert_array_equal(*outputs)
    assert traces == 1


def test_a_cache_is_never_written_in_place(twin: Any) -> None:
    settings = settings_of(Shaw(2, 1))
    layer = twin.layer(settings, draw_weights(settings))
    empty = layer.init_cache(B, C)
    _, cache = layer(draw(5, B, 4, D), cache=empty)
    layer(draw(6, B, 3, D), cache=cache)
    assert (twin.numpy(empty.key) == 0).all()
    assert twin.numpy(cache.length).tolist() == [4, 4]


def test_a_cache_flows_through_jax_transformations_and_has_the_layers_dtype() -> None:
    layer = relpos_jax.nnx.RelativeAttention(
        D, 3, Shaw(2, 0), causal=True, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)
    )
    cache = layer.init_cache(B, C)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(cache)} == {"bfloat16", "int32"}
    torch_layer = relpos_torch.RelativeAttention(D, 3, Shaw(2, 0), dtype=torch.bfloat16)
    assert torch_layer.init_cache(B, C).key.dtype == torch.bfloat16


def test_what_a_cache_cannot_hold_is_refused(twin: Any) -> None:
    settings = settings_of(Shaw(2, 1))
    empty = twin.layer(settings, draw_weights(settings)).init_cache(B, C)
    heads_first = twin.name == "torch"
    shape = (B, 1, 3, 4) if heads_first else (B, 3, 1, 4)
    longer = (B, 1, 5, 4) if heads_first else (B, 5, 1, 4)
    keys = twin.array(draw(1, *shape))
    narrow = type(empty)(**{**vars(empty), "value": twin.array(np.zeros(empty.value.shape, "f4"))})
    with unchecked():
        with pytest.raises(ShapeError, match="new values have the shape of the new keys"):
            empty.append(keys, twin.array(draw(1, *longer)))
        with pytest.raises(ShapeError, match="new values must fit the dtype of the cache"):
            narrow.append(keys, keys)
        for lengths in (np.array([1.0, 2.0]), np.array([True, False])):
            with pytest.raises(ShapeError, match="lengths are integers"):
                empty.append(keys, keys, twin.array(lengths))
        with pytest.raises(ShapeError, match="count is a number of tokens"):
            empty.drop(-1)


@pytest.mark.parametrize("lengths", [[5, 1], [-1, 1]])
def test_an_impossible_length_is_not_a_number_where_it_cannot_be_seen(lengths: list[int]) -> None:
    layer = relpos_jax.nnx.RelativeAttention(D, 3, NoPosition(), causal=True, rngs=nnx.Rngs(0))
    step = nnx.jit(lambda layer, x, cache, lengths: layer(x, cache=cache, lengths=lengths))
    x = jnp.asarray(draw(5, B, 3, D, dtype=np.float32))
    _, cache = step(layer, x, layer.init_cache(B, C), jnp.array(lengths))
    assert np.isnan(cache.key[0]).all()
    assert np.isfinite(cache.key[1]).all()
