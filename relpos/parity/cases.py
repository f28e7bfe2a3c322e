"""A case: a scheme, sizes and a seed, from which its inputs follow on every machine alike.

The inputs are rounded to the dtype under test before anybody sees them, so that the oracle and the
sides start from the same numbers and only the computation is judged.
"""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from relpos.schemes import Parameter, Scheme
from relpos.settings import AttentionSettings

__all__ = ["Case", "HeadInputs", "Inputs", "LayerInputs", "numpy_dtype"]

Masks = Literal["none", "keys", "pairs", "full", "ends"]
Positions = Literal["default", "shuffled", "packed"]
#: Start of the second row of packed positions: beyond what half precision can count, and beyond
#: where an angle computed in float32 is still good for anything.
FAR = 131_071


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of that name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The arrays of one call of `attention`, in the axis order of torch.

    Attributes:
        q: Queries [B, H, Lq, d].
        k: Keys [B, G, Lk, d].
        v: Values [B, G, Lk, d].
        params: The scheme's parameters.
        cotangent: [B, H, Lq, d]; gradients are those of sum(cotangent * output).
        mask: Boolean, broadcastable to [B, H, Lq, Lk], or None.
        query_positions: Whole numbers [Lq], [B, Lq] or [1, Lq, A], or None.
        key_positions: Whole numbers [Lk], [B, Lk] or [1, Lk, A], or None.
        features: What the scheme reads of each token [B, H, L, e]: `query_features`,
            `key_features`, both or none.
    """

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    params: dict[str, NDArray[Any]]
    cotangent: NDArray[Any]
    mask: NDArray[np.bool_] | None = None
    query_positions: NDArray[np.int32] | None = None
    key_positions: NDArray[np.int32] | None = None
    features: dict[str, NDArray[Any]] = dataclasses.field(default_factory=dict)

    @property
    def tokens(self) -> dict[str, NDArray[Any]]:
        """Everything that has an entry per token, and a gradient."""
        return {"q": self.q, "k": self.k, "v": self.v, **self.features}


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """The arrays of one call of a layer.

    Attributes:
        settings: The layer's settings.
        tensors: Its parameters under their neutral names.
        x: Input of the queries [B, Lq, D].
        key_value: Input of the keys and values [B, Lk, D]; None is self-attention.
        cotangent: [B, Lq, D].
        mask: As of `Inputs`.
        query_positions: As of `Inputs`.
        key_positions: As of `Inputs`.
    """

    settings: AttentionSettings
    tensors: dict[str, NDArray[Any]]
    x: NDArray[Any]
    key_value: NDArray[Any] | None
    cotangent: NDArray[Any]
    mask: NDArray[np.bool_] | None = None
    query_positions: NDArray[np.int32] | None = None
    key_positions: NDArray[np.int32] | None = None


@dataclass(frozen=True, eq=False)
class HeadInputs:
    """The arrays of one call of `relative_scores` per head, stacked along the first axis.

    Attributes:
        q: Queries [H, Lq, d].
        k: Keys [H, Lk, d].
        params: The scheme's parameters, each with a first axis of length H.
        cotangent: [H, Lq, Lk].
        query_positions: Whole numbers [Lq] or [1, Lq, A], or None.
        key_positions: Whole numbers [Lk] or [1, Lk, A], or None.
        features: What the scheme reads of each token [H, L, e].
    """

    q: NDArray[Any]
    k: NDArray[Any]
    params: dict[str, NDArray[Any]]
    cotangent: NDArray[Any]
    query_positions: NDArray[np.int32] | None = None
    key_positions: NDArray[np.int32] | None = None
    features: dict[str, NDArray[Any]] = dataclasses.field(default_factory=dict)

    @property
    def tokens(self) -> dict[str, NDArray[Any]]:
        """Everything that has an entry per token, and a gradient."""
        return {"q": self.q, "k": self.k, **self.features}


@dataclass(frozen=True)
class Case:
    """One situation of one scheme. Letters as everywhere: B, H, G, Lq, Lk, D, d.

    Attributes:
        name: The situation.
        scheme: The scheme with its settings.
        B: Batch rows.
        H: Query heads.
        G: Key and value heads.
        Lq: Queries.
        Lk: Keys.
        d: Head width.
        D: Width of a layer's inputs; prime to H * d.
        causal: Keys at later positions may not be attended to.
        mask: `keys` [B, 1, 1, Lk] (padding), `pairs` [1, 1, Lq, Lk], `full` [B, H, Lq, Lk] with a
            query that may attend to nothing, or `ends` [1, 1, Lq, Lk], where the first and the last
            query read all and those between only the last key.
        positions: `shuffled` [L] without order, [1, L, A] for a scheme with several axes; or
            `packed` [B, L], each batch row from a start of its own.
        scale: The factor on <q, k>; None takes the scheme's own.
        seed: Of the arrays, together with every other field.
    """

    name: str
    scheme: Scheme
    B: int = 2
    H: int = 3
    G: int = 3
    Lq: int = 5
    Lk: int = 7
    d: int = 11
    D: int = 13
    causal: bool = False
    mask: Masks = "none"
    positions: Positions = "default"
    scale: float | None = None
    seed: int = 0

    def inputs(self, dtype: str) -> Inputs:
        """The arrays of a call of `attention`."""
        draw = self._draw("attention", dtype)
        query_positions, key_positions = self._positions()
        return Inputs(
            q=draw("q", (self.B, self.H, self.Lq, self.d)),
            k=draw("k", (self.B, self.G, self.Lk, self.d)),
            v=draw("v", (self.B, self.G, self.Lk, self.d)),
            params={p.name: draw(p.name, p.shape) for p in self.parameters()},
            cotangent=draw("cotangent", (self.B, self.H, self.Lq, self.d)),
            mask=self._mask(),
            query_positions=query_positions,
            key_positions=key_positions,
            features={
                name: draw(name, (self.B, self.H, L, projection.width))
                for name, projection, L in (
                    ("query_features", self.scheme.query_projection, self.Lq),
                    ("key_features", self.scheme.key_projection, self.Lk),
                )
                if projection is not None
            },
        )

    def head_inputs(self, dtype: str) -> HeadInputs:
        """The arrays of `relative_scores` for every head of the last batch row."""
        inputs = self.inputs(dtype)
        draw = self._draw("relative_scores", dtype)
        at, others = (
            positions[-1] if positions is not None and positions.ndim == 2 else positions
            for positions in (inputs.query_positions, inputs.key_positions)
        )
        return HeadInputs(
            q=inputs.q[-1],
            k=np.repeat(inputs.k[-1], self.H // self.G, axis=0),
            params={
                name: np.broadcast_to(array, (self.H, *array.shape[1:]))
                for name, array in inputs.params.items()
            },
            cotangent=draw("cotangent", (self.H, self.Lq, self.Lk)),
            query_positions=at,
            key_positions=others,
            features={name: array[-1] for name, array in inputs.features.items()},
        )

    def layer_inputs(self, dtype: str) -> LayerInputs:
        """The arrays of a call of a layer: self-attention where Lq is Lk, else cross-attention."""
        settings = AttentionSettings(
            self.D,
            self.H,
            self.scheme,
            num_kv_heads=self.G,
            head_dim=self.d,
            causal=self.causal,
            scale=self.scale,
        )
        draw = self._draw("layer", dtype)
        query_positions, key_positions = self._positions()
        crossed = self.Lq != self.Lk
        tensors = {
            # Projections with the variance of a fresh layer, so that scores have the size of 1.
            p.name: draw(p.name, p.shape, p.init.std if p.name.endswith(".kernel") else 0.5)
            for p in settings.parameters()
        }
        return LayerInputs(
            settings=settings,
            tensors=tensors,
            x=draw("x", (self.B, self.Lq, self.D)),
            key_value=draw("key_value", (self.B, self.Lk, self.D)) if crossed else None,
            cotangent=draw("cotangent", (self.B, self.Lq, self.D)),
            mask=self._mask(),
            query_positions=query_positions,
            key_positions=key_positions,
        )

    def parameters(self) -> tuple[Parameter, ...]:
        """The scheme's table of parameters for these heads."""
        return self.scheme.parameters(self.H, self.d)

    def replace(self, **changes: Any) -> Case:
        """The same case with other fields."""
        return dataclasses.replace(self, **changes)

    def _generator(self, *words: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(" ".join(words).encode())])

    def _draw(self, call: str, dtype: str) -> _Draw:
        return _Draw(self, call, numpy_dtype(dtype))

    def _mask(self) -> NDArray[np.bool_] | None:
        if self.mask == "none":
            return None
        if self.mask == "ends":
            # All distances of a long input for the cost of a few pairs: the oracle is slow.
            ends = np.zeros((1, 1, self.Lq, self.Lk), bool)
            ends[..., [0, -1], :] = ends[..., -1] = True
            return ends
        shape = {
            "keys": (self.B, 1, 1, self.Lk),
            "pairs": (1, 1, self.Lq, self.Lk),
            "full": (self.B, self.H, self.Lq, self.Lk),
        }[self.mask]
        allowed = self._generator("mask", self.name).random(shape) < 0.7
        if self.mask == "full":
            allowed[0, self.H // 2, -1] = False
        else:
            allowed[..., 0] = True
        return allowed

    def _positions(self) -> tuple[NDArray[np.int32] | None, NDArray[np.int32] | None]:
        if self.positions == "default":
            return None, None
        generator = self._generator("positions", self.name)
        # Distances stay below the longer length, so that a table that may not clip suffices.
        reach, starts = max(self.Lq, self.Lk), [FAR if b else 3 for b in range(self.B)]
        if self.scheme.position_limits is not None:
            lowest, highest = self.scheme.position_limits
            reach, starts = highest + 1 - lowest, [lowest] * self.B
        axes = self.scheme.position_axes
        if self.positions == "shuffled" and axes > 1:
            along = [generator.permutation(reach) + starts[0] for _ in range(axes)]
            at = np.stack(along, -1)[None].astype(np.int32)
            return at[:, : self.Lq], at[:, ::-1][:, : self.Lk]
        rows = [generator.permutation(reach) + start for start in starts]
        if self.positions == "packed":
            at = np.sort(np.array(rows), axis=1)
            return at[:, -self.Lq :].astype(np.int32), at[:, : self.Lk].astype(np.int32)
        return rows[0][: self.Lq].astype(np.int32), rows[0][::-1][: self.Lk].astype(np.int32)


class _Draw:
    """Normal arrays of a case, each from a stream of its own, rounded to one dtype."""

    def __init__(self, case: Case, call: str, dtype: np.dtype[Any]) -> None:
        self._case, self._call, self._dtype = case, call, dtype

    def __call__(self, name: str, shape: tuple[int, ...], std: float = 1.0) -> NDArray[Any]:
        generator = self._case._generator(self._call, self._case.name, name)
        return (std * generator.standard_normal(shape)).astype(self._dtype)
