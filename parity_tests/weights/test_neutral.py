"""The neutral form: what it accepts, and that it lists all faults at once."""

from __future__ import annotations

import numpy as np
import pytest

from parity_tests.weights.samples import random_weights, settings_of
from relpos import AttentionSettings, NoPosition, Shaw, WeightsError
from relpos.weights import Weights

SETTINGS = settings_of(Shaw(left=3, right=1))


def test_every_fault_is_in_one_error() -> None:
    tensors = dict(random_weights(SETTINGS).tensors)
    del tensors["query.kernel"], tensors["value_table"]
    tensors["key.kernel"] = tensors["key.kernel"].transpose(0, 2, 1)
    tensors["out.bias"] = np.arange(7)
    tensors["inv_freq"] = np.zeros(3)
    with pytest.raises(WeightsError) as caught:
        Weights({"": SETTINGS}, tensors)
    got = str(caught.value.got)
    assert "missing: query.kernel [7, 6, 4], value_table [1, 5, 4]" in got
    assert "misshapen: key.kernel [7, 4, 2] for [7, 2, 4]" in got
    assert "unexpected: inv_freq [3]" in got
    assert "mistyped: out.bias int64" in got


@pytest.mark.parametrize("path", ["a.", ".a", "a..b", "a/b", "a b"])
def test_an_impossible_path_is_refused(path: str) -> None:
    tensors = {f"{path}.{n}": a for n, a in random_weights(SETTINGS).tensors.items()}
    with pytest.raises(WeightsError, match="impossible path"):
        Weights({path: SETTINGS}, tensors)


def test_the_empty_path_stands_alone() -> None:
    with pytest.raises(WeightsError, match="'' beside other layers"):
        Weights({"": SETTINGS, "a": SETTINGS}, random_weights(SETTINGS).tensors)


def test_no_layer_is_refused() -> None:
    with pytest.raises(WeightsError, match="at least one layer"):
        Weights({}, {})


def test_arrays_cannot_be_written() -> None:
    weights = random_weights(SETTINGS)
    with pytest.raises(ValueError, match="read-only"):
        weights.tensors["query.bias"][0] = 1
    with pytest.raises(TypeError):
        weights.tensors["query.bias"] = np.zeros(1)  # type: ignore[index]


def test_equality_is_of_bits_dtypes_and_settings() -> None:
    weights = random_weights(SETTINGS)
    assert weights == random_weights(SETTINGS)
    zeros = {name: np.zeros_like(array) for name, array in weights.tensors.items()}
    negative = {name: -array for name, array in zeros.items()}
    assert Weights(weights.layers, zeros) != Weights(weights.layers, negative)
    assert Weights(weights.layers, zeros) != Weights(weights.layers, zeros).astype("float64")
    clipless = settings_of(Shaw(left=3, right=1, clip=False))
    assert weights != Weights({"": clipless}, weights.tensors)


def test_join_and_layer_undo_each_other() -> None:
    first, second = random_weights(SETTINGS, seed=1), random_weights(SETTINGS, seed=2)
    joined = Weights.join({"encoder.0": first, "encoder.1": second})
    assert list(joined.layers) == ["encoder.0", "encoder.1"]
    assert joined.layer("encoder.0") == first
    assert joined.layer("encoder.1") == second
    assert list(Weights.join({"model": joined}).layers) == ["model.encoder.0", "model.encoder.1"]
    with pytest.raises(WeightsError, match=r"encoder\.2"):
        joined.layer("encoder.2")
    with pytest.raises(WeightsError, match=r"weights\.layer\(path\)"):
        _ = joined.settings


def test_join_refuses_two_layers_of_one_path() -> None:
    one = random_weights({"b.c": SETTINGS})
    with pytest.raises(WeightsError, match="twice"):
        Weights.join({"a": one, "a.b": random_weights({"c": SETTINGS})})


def test_astype_rounds_on_purpose_and_only_then() -> None:
    settings = AttentionSettings(embed_dim=5, num_heads=1, scheme=NoPosition(), bias=False)
    ones = {p.name: np.full(p.shape, 1 + 2**-20) for p in settings.parameters()}
    halved = Weights({"": settings}, ones).astype("float16")
    assert {array.dtype.name for array in halved.tensors.values()} == {"float16"}
    assert (halved.tensors["query.kernel"] == 1).all()
