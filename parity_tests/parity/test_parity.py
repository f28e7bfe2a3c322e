"""Every scheme, side and dtype against the oracle: the roster, through the harness."""

from __future__ import annotations

import pytest

from relpos.parity import Verdict
from relpos.parity.jobs import Job
from relpos.parity.run import Request
from relpos.parity.sides import Side

# The annotations that the tests check at run time cannot be compiled by torch; test_command.py
# runs that mode in a process of its own.
JOBS = [job for job in Request().jobs() if job.mode != "compile"]
# Linen decodes as nnx does, by the same cache: once is enough.
JOBS += [
    job
    for job in Request(("Shaw",), ("float32",), "jax", ("decode",), thorough=True).jobs()
    if job.kind == "linen" and job.row.representative
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.name} {job.side} {job.dtype}")
def test_a_side_stays_within_its_budget(job: Job, sides: dict[str, Side]) -> None:
    check, _ = job.run(sides[job.framework])
    assert check.verdict is Verdict.PASS, f"{check.finding}\n{check.command}"
