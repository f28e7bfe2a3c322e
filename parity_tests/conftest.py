"""What holds for every test: threads, precision, and annotations checked at run time."""

from __future__ import annotations

import gc
import os

# Before torch and jax are imported anywhere: each brings a pool of threads as wide as the machine,
# and with several workers those pools fight. XLA_FLAGS is read when jax starts its backend.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = " ".join(
        [
            os.environ.get("XLA_FLAGS", ""),
            "--xla_cpu_multi_thread_eigen=false",
            "intra_op_parallelism_threads=1",
        ]
    )

import hypothesis
import jax
import pytest
import torch

from parity_tests.annotations import check_annotations

# Before the twins are imported anywhere.
check_annotations("relpos_torch", "relpos_jax")

# float64 exists in JAX only when asked for; float32 tests state their dtype.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# No deadline: a first call compiles. Derandomised: a commit passes or fails, whenever it runs.
hypothesis.settings.register_profile("relpos", deadline=None, derandomize=True)
hypothesis.settings.load_profile("relpos")

# The frameworks live as long as the process. Going through their million objects again and again
# would take half a second each time, and the oracle's many small objects make it happen often.
gc.collect()
gc.freeze()
gc.set_threshold(200_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one row of the roster follow one another, whatever their file.

    Neighbours mostly run in one worker, where the oracle's answers and compiled programs are kept.
    """
    from relpos.parity.roster import ROSTER

    order = {name: number for number, name in enumerate(ROSTER)}

    def place(item: pytest.Item) -> int:
        params = getattr(getattr(item, "callspec", None), "params", {})
        row = params.get("row") or getattr(params.get("job"), "row", None)
        return order.get(getattr(row, "name", ""), -1)

    items.sort(key=place)
