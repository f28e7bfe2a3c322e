"""The bench measures what it says: ratios in one run, peaks of memory, and nobody left out."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relpos.bench.contender import Calls, Contender, Size
from relpos.bench.memory import measure_peak, peak_here
from relpos.bench.result import PLAIN, Result
from relpos.bench.run import Request, everyone
from relpos.bench.timing import SHORTEST, measure_times
from relpos.bench.torch_contenders import contenders
from relpos.cli.app import build_app
from relpos.errors import SettingError


def contender(name: str, build: object, **options: object) -> Contender:
    return Contender(name, "torch", "function", "no positions", build, **options)  # type: ignore[arg-type]


def test_a_small_run_gives_a_table_a_file_and_a_picture(tmp_path: Path) -> None:
    file, image = tmp_path / "bench.json", tmp_path / "bench.png"
    words = ["bench", "--length", "8", "--length", "16", "--work", "T5", "--only", "torch"]
    words += ["--rounds", "2", "--no-memory", "--json", str(file), "--plot", str(image)]
    result = CliRunner().invoke(build_app(), words)
    assert result.exit_code == 0, result.output
    assert "relpos T5" in result.output
    assert image.read_bytes().startswith(b"\x89PNG")
    data = json.loads(file.read_text())
    assert data["environment"]["processor"]
    assert [len(rates) for rates in data["matrix_product_rates"].values()] == [2, 2]
    by_name = {(m["name"], m["direction"], m["L"]): m for m in data["measurements"]}
    for name in ("relpos T5", "SDPA with the bias written out", "transformers T5Attention"):
        for direction in ("forward", "both"):
            for L in (8, 16):
                measured = by_name[name, direction, L]
                assert not measured["problem"]
                assert len(measured["seconds"]) == 2
                assert measured["ratio_to_plain"][1] > 0
                assert measured["share_of_rate"] > 0
    assert by_name[PLAIN["torch", "function"], "both", 8]["ratio_to_plain"] == [1.0, 1.0, 1.0]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_everyone_computes_at_a_size() -> None:
    size = Size(B=2, H=2, L=9, d=8)
    for each in everyone(("torch", "jax"), ("dense", "blockwise")):
        if each.name == "compiled flex_attention":
            continue  # half a minute of compilation; what it computes is torch's
        if each.framework == "torch":
            calls = each.build(size)
            calls.forward()
            assert calls.both is not None
            calls.both()


def test_work_and_rivals_belong_together() -> None:
    """Whatever others compute is computed by one of ours, in the same form."""
    found = everyone(("torch", "jax"), ())
    ours = {(each.framework, each.form, each.work) for each in found if each.ours}
    for each in found:
        if each.work != "no positions":
            assert (each.framework, each.form, each.work) in ours, each.name
    assert len({each.name for each in found}) == len(found)


def test_who_fails_is_reported_and_the_others_go_on() -> None:
    def fails(size: Size) -> Calls:
        raise ValueError("no such size")

    fine = contender("fine", lambda size: Calls(lambda: None, None))
    result = Result()
    measure_times(result, [contender("broken", fails), fine], Size(L=4), 1, lambda name: None)
    broken, working = (result.find(name, "forward", 4) for name in ("broken", "fine"))
    assert broken is not None
    assert working is not None
    assert broken.problem == "ValueError: no such size"
    assert len(working.seconds) == 1
    backward = result.find("fine", "both", 4)
    assert backward is not None
    assert backward.problem == "there is no backward"


def test_a_package_that_is_not_there_is_missing() -> None:
    absent = contender("absent", lambda size: Calls(lambda: None, None), needs=("no_such_package",))
    assert absent.missing == ("no_such_package",)


def test_a_peak_is_what_a_call_holds() -> None:
    def build(size: Size) -> Calls:
        return Calls(lambda: bytearray(b"x") * (64 << 20) and None, None)

    peak = peak_here(contender("holds 64 MiB", build), "forward", Size(L=1))
    assert 60 << 20 < peak < 72 << 20


def test_a_fresh_process_measures_a_peak() -> None:
    by_name = {each.name: each for each in contenders(())}
    written_out = by_name["q E^T and gather"]
    peak, problem = measure_peak(written_out, "forward", Size(L=512))
    assert not problem
    assert peak is not None
    # Scores of 8 heads by themselves are 8 MiB.
    assert 8 << 20 < peak < 200 << 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--work", "T6"), "what is compared must be known by name"),
        (("--only", "mxnet"), "a framework must be known by name"),
        (("--dtype", "int8"), "--dtype must be known"),
        (("--plot", "bench.gif"), "--plot must be known"),
        (("--length", "0"), "lengths count tokens"),
        (("--kernel", "magic"), "a kernel of ours must be known by name"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(build_app(), ["bench", *words])
    assert isinstance(result.exception, SettingError)
    assert message in str(result.exception)


def test_lengths_are_numbers() -> None:
    with pytest.raises(SettingError, match="rounds are counted"):
        Request(rounds=0)


def test_who_fails_in_a_later_round_is_out_and_an_interrupt_keeps_whole_rounds() -> None:
    calls = {"fails": 0, "stops": 0}

    def plain() -> None:
        time.sleep(2 * SHORTEST)

    def fails() -> None:
        plain()
        calls["fails"] += 1
        if calls["fails"] > 3:
            raise MemoryError("no more")

    def stops() -> None:
        plain()
        calls["stops"] += 1
        if calls["stops"] == 5:
            raise KeyboardInterrupt

    named = {"fails": fails, "stops": stops, "plain": plain}
    others = [
        contender(name, lambda size, call=call: Calls(call, None)) for name, call in named.items()
    ]
    result = Result()
    with pytest.raises(KeyboardInterrupt):
        measure_times(result, others, Size(L=4), 9, lambda name: None)
    found = {name: result.find(name, "forward", 4) for name in named}
    assert found["fails"].problem == "MemoryError: no more"
    assert found["fails"].seconds == []
    assert len(found["stops"].seconds) == len(found["plain"].seconds) == 2
    assert result.ratio(found["stops"], "plain") is not None
