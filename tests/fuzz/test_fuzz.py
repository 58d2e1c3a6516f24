"""Command lines, files and calls of tools made at random: every one is answered or refused in a sentence.

A small sample, the same each time; `python -m tools.fuzz` runs as many as one likes, and the nightly workflow does.
"""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fuzz import judging
from tests.fuzz.command_lines import Fuzzer, commands
from tests.fuzz.formats import FORMATS, FileFuzzer
from tests.fuzz.judging import Judge, judged, report, wrong_number


def test_commands_are_found() -> None:
    found = commands()
    assert {("train",), ("serve",), ("explain", "train"), ("validate", "serving"), ("run", "train")} <= set(found)
    assert {"model", "on", "batch", "seq"} <= {flag.name for flag in found["train",] if flag.required or flag.name}


def test_the_judge_sees_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "code" in judged(1, "", "", False)
    assert "control" in judged(0, "\x1b[31m", "", False)
    assert "sentence" in judged(2, "", "dscale: a\ndscale: b\n", False)
    assert "floods" in judged(2, "", f"dscale: {'a' * 2000}\n", False)
    assert "inf" in judged(0, "takes infs of time", "", False)
    assert "step_s" in wrong_number({"plans": [{"step_s": -0.0}]})
    assert wrong_number({"step_s": float("nan")})
    assert not judged(2, "", "dscale: The batch is 'x'.\n", False)
    judge = Judge(tmp_path, limit=0.05)
    assert "KeyError" in judge.reading(lambda: {}["a"])
    assert "0.05 s" in judge.reading(lambda: [None for _ in iter(int, 1)])
    assert judge.ends["defect"] == 2
    assert not judge.reading(lambda: time.sleep(0.1))  # the machine is another's
    assert "0.05 s" in judge.reading(lambda: time.sleep(2))
    peaks = iter((5, 5_000_000))
    monkeypatch.setattr(judging.resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=next(peaks)))
    assert "grew by 5120 MB" in judge.reading(lambda: None)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_command_line_is_answered_or_refused(seed: int, tmp_path: Path) -> None:
    failed = [report(line, problem) for line, problem in Fuzzer(tmp_path, seed).cases(20) if problem]
    assert not failed, "\n".join(failed)


def test_every_call_of_a_tool_is_answered_or_refused(tmp_path: Path) -> None:
    failed = [report(line, problem) for line, problem in Fuzzer(tmp_path, 4, even=True).calls(60) if problem]
    assert not failed, "\n".join(failed)


def test_every_reader_takes_its_good_file(tmp_path: Path) -> None:
    """Else what is spoilt of it would test the first check alone."""
    files, refused = FileFuzzer(tmp_path, 5), []
    for one in FORMATS:
        reader = min(one.readers, key=lambda reader: isinstance(reader, str))  # a function is the cheapest
        before = files.judges[one.name].ends["2"]
        problem = files.read(one, reader, files.originals[one.name])
        refused += [(one.name, problem)] if problem or files.judges[one.name].ends["2"] > before else []
    assert not refused


def test_every_spoilt_file_is_read_or_refused(tmp_path: Path) -> None:
    files = FileFuzzer(tmp_path, 6, even=True)
    failed = [report(line, problem) for line, problem in files.cases(200) if problem]
    assert not failed, "\n".join(failed)
