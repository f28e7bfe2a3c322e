"""The sentence, as the numbers that the voice reads: phonemes of IPA with blanks in between.

    ^ _ p1 _ p2 _ ... pn _ $          2n + 3 tokens for n phonemes

`^` begins, `$` ends and `_` is the blank that Piper puts after every phoneme; the voice's own JSON
file says which number each of them has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["IPA", "SENTENCE", "Tokens", "read_tokens"]

SENTENCE = "Word order matters."
IPA = "wˈɜːd ˈɔːɹdɚ mˈæɾɚz."  # noqa: RUF001 - these are the letters of IPA


@dataclass(frozen=True, eq=False)
class Tokens:
    """What the voice reads.

    Attributes:
        ids: One number per token [L].
        spoken: They are the sentence; False where the voice does not say how to spell it.
        note: What they are, in words.
    """

    ids: NDArray[np.int64]
    spoken: bool
    note: str


def read_tokens(model: Path, num_symbols: int) -> Tokens:
    """The sentence in the numbers of the voice, or numbers in its range where it does not tell.

    Args:
        model: The ONNX file; Piper puts `MODEL.onnx.json` beside it.
        num_symbols: Rows of the voice's embedding.
    """
    table = _phoneme_ids(model.with_name(model.name + ".json"))
    missing = sorted({*IPA, "^", "_", "$"} - table.keys())
    if missing or max(max(table[symbol]) for symbol in {*IPA, "^", "_", "$"}) >= num_symbols:
        why = f"{model.name}.json does not spell it" if table else f"no {model.name}.json beside it"
        # Steps of one and of three in turn: neighbours differ and distances repeat.
        ids = np.cumsum(np.resize([1, 3], 2 * len(IPA) + 3)) % num_symbols
        return Tokens(ids.astype(np.int64), False, f"no sentence ({why}), numbers in range instead")
    spelt = [*table["^"], *table["_"]]
    for symbol in IPA:
        spelt += [*table[symbol], *table["_"]]
    spelt += table["$"]
    return Tokens(np.array(spelt, np.int64), True, f'"{SENTENCE}"')


def _phoneme_ids(config: Path) -> dict[str, list[int]]:
    """The map of symbols in a voice's JSON file; empty where there is none that can be read."""
    try:
        stored = json.loads(config.read_text("utf-8"))["phoneme_id_map"]
        return {
            str(symbol): [int(number) for number in numbers]
            for symbol, numbers in stored.items()
            if numbers
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Whatever is wrong with it, the model itself can still be judged, and the caller says so.
        return {}
