"""Layers under torch.compile with lengths that change, in a process without checked annotations."""

from __future__ import annotations

import subprocess
import sys

# What is ours is that a layer is traced as one graph, that its length stays free in it, and that
# other settings are another graph. That shows when the graph is run as it is; the compiler behind
# it, which takes half a minute for a layer, has its turn in the parity run.
SCRIPT = """
import torch
import relpos_torch
from relpos import AttentionSettings, RoPE, oracle
from relpos.parity import Verdict, compare
from relpos.parity.roster import ROSTER
from relpos.weights import to_neutral

single = oracle.Precision.of("float32")
schemes = [(row.scheme, row.d, row.D) for row in ROSTER.values() if row.representative]
schemes.append((RoPE("half", base=500.0), 10, 13))
# Both rotations one after the other; before all else the compiler forgets, since it keeps no more
# than eight graphs of one function.
schemes.sort(key=lambda each: isinstance(each[0], RoPE))
for number, (scheme, d, D) in enumerate(schemes):
    if number < len(schemes) - 1:
        torch.compiler.reset()
    settings = AttentionSettings(D, 3, scheme, head_dim=d, causal=True)
    layer = relpos_torch.RelativeAttention.from_settings(settings)
    tensors = to_neutral(layer).astype("float64").tensors
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
    for length in (3, 4, 5):
        x = torch.randn(2, length, D)
        truth = oracle.layer(settings, tensors, x.double().numpy(), precision=single)
        with torch.no_grad():
            output = compiled(x).numpy()
        comparison = compare(truth.output, output)
        assert comparison.verdict is Verdict.PASS, f"{scheme} at {length}: {comparison}"
torch.compiler.reset()
q = torch.randn(1, 3, 5, 8)
def around(q):
    return 1.0 + relpos_torch.attention(q, q, q, RoPE("half"), implementation="blockwise")
assert torch.equal(torch.compile(around, backend="eager")(q), around(q))
print("compiled")
"""


def test_a_compiled_layer_serves_changing_lengths_and_other_settings() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "compiled"
