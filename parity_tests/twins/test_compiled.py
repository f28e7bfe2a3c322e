"""Layers under torch.compile with lengths that change, in a process without checked annotations."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

# What is ours is that a layer is traced as one graph, that its length stays free in it, and that
# other settings are another graph. That shows without the C++ compiler, which takes half a minute
# for a layer; it has its turn in the parity run, and here once.
SCRIPT = """
import sys
import torch
import relpos_torch
from relpos import AttentionSettings, RoPE, Shaw, oracle
from relpos.parity import Verdict, compare
from relpos.parity.roster import ROSTER
from relpos.weights import to_neutral

single = oracle.Precision.of("float32")
backend = sys.argv[1]
schemes = [(Shaw(2, 1), 4)]
if backend == "aot_eager":
    schemes = [(row.scheme, row.d) for row in ROSTER.values() if row.representative]
    schemes.append((RoPE("half", base=500.0), 10))
for scheme, d in schemes:
    settings = AttentionSettings(10, 2, scheme, head_dim=d, causal=True)
    layer = relpos_torch.RelativeAttention.from_settings(settings)
    tensors = to_neutral(layer).astype("float64").tensors
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for length in (5, 7, 11):
        x = torch.randn(2, length, 10)
        truth = oracle.layer(settings, tensors, x.double().numpy(), precision=single)
        with torch.no_grad():
            output = compiled(x).numpy()
        comparison = compare(truth.output, output)
        assert comparison.verdict is Verdict.PASS, f"{scheme} at {length}: {comparison}"
print("compiled")
"""


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_layer_serves_changing_lengths_and_other_settings(backend: str) -> None:
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler, and there is no g++")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, backend], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "compiled"
