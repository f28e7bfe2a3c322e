"""`relpos demo`: the relative attention of a real voice, in both frameworks, against an engine.

One file per subject, in the order of the command: `voice` reads the model, `phonemes` the sentence,
`engine` runs it in onnxruntime, `torch_layers` and `flax_layers` are the twins, `truth` is the
float64 oracle, `judge` compares them, `wrong_rule` breaks one on purpose, `pattern` draws,
`document` writes, `screen` shows, and `run` is the order itself.
"""

__all__: list[str] = []
