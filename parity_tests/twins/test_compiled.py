"""Layers under torch.compile with lengths that change, in a process without checked annotations."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import torch
import relpos_torch
from relpos import AttentionSettings, RoPE, Shaw, oracle
from relpos.parity import Verdict, compare
from relpos.weights import to_neutral

single = oracle.Precision.of("float32")
for scheme in (RoPE("half"), RoPE("half", base=500.0), Shaw(2, 1)):
    settings = AttentionSettings(10, 2, scheme, head_dim=4, causal=True)
    layer = relpos_torch.RelativeAttention.from_settings(settings)
    tensors = to_neutral(layer).astype("float64").tensors
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for length in (5, 7, 11):
        x = torch.randn(2, length, 10)
        truth = oracle.layer(settings, tensors, x.double().numpy(), precision=single)
        comparison = compare(truth.output, compiled(x).detach().numpy())
        assert comparison.verdict is Verdict.PASS, f"{scheme} at {length}: {comparison}"
print("compiled")
"""


@pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile needs a C++ compiler, and there is no g++"
)
def test_a_compiled_layer_serves_changing_lengths_and_other_settings() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "compiled"
