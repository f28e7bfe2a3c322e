"""The harness proves itself: each seeded fault, put into a twin, must be caught.

A mutation replaces a named function of a twin while a block runs. Both twins have the same names,
so that one mutation serves both; what differs between the frameworks stands in `_Framework`. It is
caught if a case that the twin passes becomes a FAIL against the oracle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relpos.distance import RowMap
from relpos.parity.comparison import compare_exact
from relpos.parity.jobs import Job, judge
from relpos.parity.report import Check
from relpos.parity.roster import ROSTER
from relpos.parity.sides import Side
from relpos.parity.verdict import Verdict

__all__ = ["MUTATIONS", "Mutation", "mutated", "run_mutation"]

#: From the framework and what stands in the twin to what shall stand there.
Replace = Callable[["_Framework", Any], Any]


@dataclass(frozen=True)
class Mutation:
    """A fault that is put into a twin.

    Attributes:
        name: What is wrong.
        target: What is replaced, below `relpos_torch` or `relpos_jax`.
        replace: Makes the wrong one from the right one.
        schemes: The schemes that can show the fault.
        cases: The cases that can show it, the likeliest first; empty is all.
    """

    name: str
    target: str
    replace: Replace
    schemes: tuple[str, ...]
    cases: tuple[str, ...] = ()


MUTATIONS: dict[str, Mutation] = {}

_TABLES = ("Shaw", "Windowed", "T5")
_VECTORS = ("Shaw", "Windowed")
_DECAYS = ("ForgettingAttention",)
_COUNTS = ("CoPE",)
_ALL = ("NoPosition", "Shaw", "Windowed", "T5", "RoPE")


def _mutation(
    name: str, target: str, schemes: tuple[str, ...], *cases: str
) -> Callable[[Replace], Replace]:
    """Register a mutation under its name."""

    def register(replace: Replace) -> Replace:
        MUTATIONS[name] = Mutation(name, target, replace, schemes, cases)
        return replace

    return register


@contextlib.contextmanager
def mutated(name: str, framework: str) -> Iterator[None]:
    """A twin with the mutation in it, for as long as the block runs."""
    mutation = MUTATIONS[name]
    path, _, function = mutation.target.rpartition(".")
    module = importlib.import_module(f"relpos_{framework}.{path}")
    right = getattr(module, function)
    setattr(module, function, mutation.replace(_Framework(framework), right))
    try:
        yield
    finally:
        setattr(module, function, right)


def run_mutation(name: str, framework: str, side: Side) -> Check:
    """Try a mutation on the roster's cases until one catches it.

    Returns:
        A PASS that names the case which caught it, or a FAIL: the harness is blind to the fault.
    """
    mutation = MUTATIONS[name]
    mode = "eager" if framework == "torch" else "jit"
    tried = 0
    for job in _jobs(mutation, framework, mode):
        if not _passes(job, side):
            continue  # a case that fails anyhow shows nothing
        tried += 1
        with mutated(name, framework):
            answer = job.answer(side)  # a fault that crashes would prove nothing: it is not caught
        comparisons = judge(job, job.reference(), answer)
        wrong = Check(job.row.scheme.name, job.name, job.side, job.dtype, comparisons)
        if wrong.verdict is Verdict.FAIL:
            assert wrong.worst is not None
            return Check(
                "mutations",
                name,
                f"mutations of {framework} caught",
                comparisons=(compare_exact(np.ones(1, bool), np.ones(1, bool), what="caught"),),
                note=f"{wrong.worst.ratio:.0e} x budget in {job.row.name}, {job.case.name}",
            )
    return Check(
        "mutations",
        name,
        f"mutations of {framework} caught",
        problem=f"{tried} cases ran with the fault and all passed: the harness is blind to it",
    )


@functools.cache
def _passes(job: Job, side: Side) -> bool:
    """Whether the twin as it is passes a job."""
    return job.run(side)[0].verdict is Verdict.PASS


def _jobs(mutation: Mutation, framework: str, mode: str) -> Iterator[Job]:
    for row in ROSTER.values():
        if row.scheme.name in mutation.schemes:
            by_name = {case.name: case for case in row.cases}
            for name in mutation.cases or by_name:
                if name in by_name:
                    case = by_name[name]
                    yield Job(row, "attention", case, "float32", framework, framework, mode)


class _Framework:
    """The few operations whose names the frameworks do not share, and the module of the others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.xp: Any = importlib.import_module("torch" if name == "torch" else "jax.numpy")
        #: Where a kernel's q, k and v have their heads.
        self.head_axis = 1 if name == "torch" else 2

    def detach(self, x: Any) -> Any:
        """The same numbers without a gradient."""
        if self.name == "torch":
            return x.detach()
        return importlib.import_module("jax").lax.stop_gradient(x)

    def cast(self, x: Any, dtype: Any) -> Any:
        """x in a dtype, by its name or as another array's."""
        wanted = getattr(self.xp, dtype) if isinstance(dtype, str) else dtype
        return x.to(wanted) if self.name == "torch" else x.astype(wanted)


# Faults in the terms: what a scheme hands to the kernel.


def _in_tables(change: Callable[[_Framework, Any, Any], Any]) -> Replace:
    """Every table of the lowered scheme changed by change(framework, table, positions)."""

    def replace(fw: _Framework, lower: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(scheme: Any, params: Any, call: Any) -> Any:
            lowered = lower(scheme, params, call)

            def changed(table: Any) -> Any:
                return change(fw, table, call.positions)

            def product(old: Any) -> Any:
                return dataclasses.replace(old, table=changed(old.table))

            terms = dataclasses.replace(
                lowered.terms,
                query=tuple(map(product, lowered.terms.query)),
                key=tuple(map(product, lowered.terms.key)),
                bias=tuple(map(changed, lowered.terms.bias)),
                value_table=lowered.terms.value_table and changed(lowered.terms.value_table),
            )
            return dataclasses.replace(lowered, terms=terms)

        return wrong

    return replace


def _in_terms(**changes: Any) -> Replace:
    """The terms of the lowered scheme with other fields."""

    def replace(fw: _Framework, lower: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*arguments: Any) -> Any:
            lowered = lower(*arguments)
            return dataclasses.replace(lowered, terms=dataclasses.replace(lowered.terms, **changes))

        return wrong

    return replace


def _moved(table: Any, by: int) -> Any:
    return dataclasses.replace(table, first=table.first + by)


@_mutation("i - j for j - i", "schemes.lower", _TABLES, "cross")
@_in_tables
def _(fw: _Framework, table: Any, positions: Any) -> Any:
    N = table.values.shape[1]
    flipped = fw.xp.flip(table.values, (1,))
    return dataclasses.replace(table, values=flipped, first=1 - table.first - N)


@_mutation("one row off", "schemes.lower", _TABLES, "cross")
@_in_tables
def _(fw: _Framework, table: Any, positions: Any) -> Any:
    return _moved(table, 1)


@_mutation("queries counted from 0 beside a longer past", "schemes.lower", _TABLES, "cross")
@_in_tables
def _(fw: _Framework, table: Any, positions: Any) -> Any:
    return _moved(table, positions.Lq - positions.Lk)


@_mutation("reshape for transpose", "schemes.lower", _VECTORS, "cross")
@_in_tables
def _(fw: _Framework, table: Any, positions: Any) -> Any:
    heads, N, e = table.values.shape
    wrong = fw.xp.swapaxes(table.values.reshape(heads, e, N), 1, 2)
    return dataclasses.replace(table, values=wrong)


@_mutation("gradient of the tables dropped", "schemes.lower", _TABLES, "cross")
@_in_tables
def _(fw: _Framework, table: Any, positions: Any) -> Any:
    return dataclasses.replace(table, values=fw.detach(table.values))


@_mutation("one head's table for every head", "schemes.lower", ("T5",), "cross")
@_in_tables
def _(fw: _Framework, table: Any, positions: Any) -> Any:
    return dataclasses.replace(table, values=table.values[:1])


@_mutation("last row repeated outside the window", "schemes.lower", ("Windowed",), "cross")
@_in_tables
def _(fw: _Framework, table: Any, positions: Any) -> Any:
    return dataclasses.replace(table, values=table.values[:, 1:-1], first=table.first + 1)


@_mutation("position term not scaled", "schemes.lower", _VECTORS, "cross")
def _(fw: _Framework, lower: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*arguments: Any) -> Any:
        lowered = lower(*arguments)
        unscaled = tuple(dataclasses.replace(p, scale=1.0) for p in lowered.terms.query)
        return dataclasses.replace(
            lowered, terms=dataclasses.replace(lowered.terms, query=unscaled)
        )

    return wrong


_mutation("content not scaled", "schemes.lower", ("NoPosition",), "cross")(_in_terms(scale=1.0))
_mutation("value table dropped", "schemes.lower", _VECTORS, "cross")(_in_terms(value_table=None))
_mutation("position scores dropped", "schemes.lower", _TABLES, "cross")(
    _in_terms(query=(), key=(), bias=())
)


# Faults in T5's buckets.


def _row_map(bucket: Callable[[np.ndarray, int, int], np.ndarray]) -> Replace:
    """Buckets of one side from bucket(n, buckets per side, max_distance)."""

    def replace(fw: _Framework, right: Callable[..., RowMap]) -> Callable[..., RowMap]:
        def wrong(num_buckets: int, max_distance: int, bidirectional: bool) -> RowMap:
            per_side = num_buckets // 2 if bidirectional else num_buckets
            distance = np.arange(-2 * max_distance, 2 * max_distance + 1)
            n = np.abs(distance) if bidirectional else np.maximum(-distance, 0)
            rows = np.minimum(bucket(n, per_side, max_distance), per_side - 1)
            rows = np.where((distance > 0) & bidirectional, rows + per_side, rows)
            return RowMap(-2 * max_distance, rows.astype(np.int32))

        return wrong

    return replace


@_mutation("no logarithm in T5's buckets", "schemes.t5.t5_row_map", ("T5",), "past")
@_row_map
def _(n: np.ndarray, per_side: int, max_distance: int) -> np.ndarray:
    return n


@_mutation("a logarithm one ulp low", "schemes.t5.t5_row_map", ("T5",), "past")
@_row_map
def _(n: np.ndarray, per_side: int, max_distance: int) -> np.ndarray:
    exact = per_side // 2
    steps = np.log(np.maximum(n, exact) / exact) / np.log(max_distance / exact)
    low = np.nextafter((steps * (per_side - exact)).astype(np.float32), np.float32(-1))
    return np.where(n < exact, n, exact + np.maximum(np.floor(low), 0).astype(int))


# Faults in rotations.


@_mutation("the other pairs of rotary channels", "schemes.rope.rotate", ("RoPE",), "cross")
def _(fw: _Framework, rotate: Callable[..., Any]) -> Callable[..., Any]:
    other = {"half": "interleaved", "interleaved": "half"}
    return lambda x, cos, sin, layout: rotate(x, cos, sin, other[layout])


@_mutation("rotated backwards", "schemes.rope.angles", ("RoPE",), "cross")
def _(fw: _Framework, angles: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*arguments: Any) -> Any:
        cos, sin = angles(*arguments)
        return cos, -sin

    return wrong


@_mutation("keys not rotated", "schemes.lower", ("RoPE",), "cross")
def _(fw: _Framework, lower: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(scheme: Any, params: Any, call: Any) -> Any:
        return dataclasses.replace(lower(scheme, params, call), k=call.k)

    return wrong


@_mutation("positions in half precision", "schemes.rope.angles", ("RoPE",), "packed")
def _(fw: _Framework, angles: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(scheme: Any, positions: Any, *others: Any) -> Any:
        rounded = fw.cast(fw.cast(positions, "bfloat16"), positions.dtype)
        return angles(scheme, rounded, *others)

    return wrong


@_mutation("angles multiplied in float32", "schemes.rope.angles", ("RoPE",), "packed")
def _(fw: _Framework, angles: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(scheme: Any, positions: Any, head_dim: int, dtype: Any, length: int = 0) -> Any:
        frequency = np.array(scheme.frequencies(head_dim, length), np.float32)
        at = fw.cast(positions, "float32")[..., None]
        frequency = frequency.reshape((1,) * (at.ndim - 1) + (-1,))
        angle = at * fw.xp.asarray(frequency)
        return fw.cast(fw.xp.cos(angle), dtype), fw.cast(fw.xp.sin(angle), dtype)

    return wrong


@_mutation("grown with the distance", "schemes.xpos.decay", ("XPos",), "cross")
def _(fw: _Framework, decay: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: 1 / decay(*arguments)


@_mutation(
    "positions read of the opposite distance", "schemes.deberta.projected", ("DeBERTa",), "cross"
)
def _(fw: _Framework, projected: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(rows: Any, params: Any, side: str) -> Any:
        # In ascending order the row of -d is N - 2 - row(d).
        opposite = fw.xp.roll(fw.xp.flip(rows, (0,)), -1, 0)
        return projected(opposite if side == "query" else rows, params, side)

    return wrong


@_mutation("gates that are all open", "schemes.gated_t5.gates", ("GatedT5",), "cross")
def _(fw: _Framework, gates: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: 0.0 * gates(*arguments) + 1.0


# Faults in the kernel: heads, values, masks, softmax.


def _kernel(change: Callable[..., dict[str, Any]]) -> Replace:
    """Every kernel with other q, k and v, which change(framework, q, k, v) gives by name."""

    def replace(fw: _Framework, kernels: dict[str, Any]) -> dict[str, Any]:
        def wrong(kernel: Callable[..., Any]) -> Callable[..., Any]:
            def call(q: Any, k: Any, v: Any, terms: Any, **others: Any) -> Any:
                given = {"q": q, "k": k, "v": v}
                given |= change(fw, **given)
                return kernel(given["q"], given["k"], given["v"], terms, **others)

            return call

        return {name: wrong(kernel) for name, kernel in kernels.items()}

    return replace


@_mutation("head h reads key head h % G", "functional.KERNELS", _ALL, "masked")
@_kernel
def _(fw: _Framework, q: Any, k: Any, v: Any) -> dict[str, Any]:
    repeats = q.shape[fw.head_axis] // k.shape[fw.head_axis]
    return {
        "k": fw.xp.concatenate([k] * repeats, fw.head_axis),
        "v": fw.xp.concatenate([v] * repeats, fw.head_axis),
    }


@_mutation("values built from the keys", "functional.KERNELS", _ALL, "cross")
@_kernel
def _(fw: _Framework, q: Any, k: Any, v: Any) -> dict[str, Any]:
    return {"v": k}


@_mutation("gradient of k dropped", "functional.KERNELS", _ALL, "cross")
@_kernel
def _(fw: _Framework, q: Any, k: Any, v: Any) -> dict[str, Any]:
    return {"k": fw.detach(k)}


@_mutation("mask ignored", "functional.attention_mask", _ALL, "shuffled")
def _(fw: _Framework, right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda mask, *others: right(None, *others)


def _places(fw: _Framework, positions: Any) -> tuple[Any, Any]:
    """Places of the queries [1, 1, Lq, 1] and of the keys [1, 1, 1, Lk], each from 0 on."""
    queries, keys = fw.xp.arange(positions.Lq), fw.xp.arange(positions.Lk)
    return queries[None, None, :, None], keys[None, None, None, :]


@_mutation("causal from the top left", "functional.attention_mask", _ALL, "masked")
def _(fw: _Framework, right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(mask: Any, positions: Any, *others: Any) -> Any:
        queries, keys = _places(fw, positions)
        return keys <= queries if mask is None else mask & (keys <= queries)

    return wrong


@_mutation("causal by a step too many", "functional.attention_mask", _ALL, "masked")
def _(fw: _Framework, right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(mask: Any, positions: Any, *others: Any) -> Any:
        queries, keys = _places(fw, positions)
        allowed = keys < queries + (positions.Lk - positions.Lq)
        return allowed if mask is None else mask & allowed

    return wrong


def _softmax(change: Callable[[_Framework, Any, Any], Any]) -> Replace:
    """The weights changed by change(framework, weights, mask)."""

    def replace(fw: _Framework, right: Callable[..., Any]) -> Callable[..., Any]:
        return lambda scores, mask: change(fw, right(scores, mask), mask)

    return replace


@_mutation(
    "a query that reads nothing gets the mean", "kernels.dense.masked_softmax", _ALL, "masked"
)
@_softmax
def _(fw: _Framework, weights: Any, mask: Any) -> Any:
    nothing = (~mask).all(-1)[..., None]
    return fw.xp.where(nothing, 1.0 / weights.shape[-1], weights)


@_mutation("weights in half precision", "kernels.dense.masked_softmax", _ALL, "cross")
@_softmax
def _(fw: _Framework, weights: Any, mask: Any) -> Any:
    return fw.cast(fw.cast(weights, "bfloat16"), weights.dtype)


@_mutation(
    "the next query's row leaks through the skew", "kernels.by_distance.skew", _TABLES, "cross"
)
def _(fw: _Framework, skew: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(by_distance: Any) -> Any:
        scores = skew(by_distance)
        leaked = fw.xp.roll(scores, -1, -2)[..., :1]
        return fw.xp.concatenate([scores[..., :-1], leaked], -1)

    return wrong


@_mutation("far tokens gain what near ones lose", "kernels.dense.decay_scores", _DECAYS, "masked")
def _(fw: _Framework, scores: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *terms: -scores(*terms)


@_mutation("masked keys are counted", "kernels.counted.places", _COUNTS, "masked")
def _(fw: _Framework, places: Callable[..., Any]) -> Callable[..., Any]:
    return lambda content, mask, positions: places(content, None, positions)


@_mutation("a window's height for its width", "schemes.swin2d.by_offset", ("Swin2D",), "masked")
def _(fw: _Framework, by_offset: Callable[..., Any]) -> Callable[..., Any]:
    return lambda values, height, width: by_offset(values, width, height)


@_mutation("2-D offsets from key to query", "schemes.beit.entries", ("BEiT",), "masked")
def _(fw: _Framework, entries: Callable[..., Any]) -> Callable[..., Any]:
    return lambda scheme, query, key: fw.xp.swapaxes(entries(scheme, key, query), -1, -2)
