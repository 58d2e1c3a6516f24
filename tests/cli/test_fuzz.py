"""Command lines and files made at random: every one is answered or refused in a sentence."""

import os
import time
from pathlib import Path

import pytest

from tests.cli.fuzzing import Fuzzer, commands, judged, report, wrong_number


def test_commands_are_found() -> None:
    found = commands()
    assert {("train",), ("serve",), ("explain", "train"), ("validate", "serving"), ("run", "train")} <= set(found)
    assert {"model", "on", "batch", "seq"} <= {flag.name for flag in found["train",] if flag.required or flag.name}


def test_the_judge_sees_what_is_wrong() -> None:
    assert "code" in judged(1, "", "", False)
    assert "control" in judged(0, "\x1b[31m", "", False)
    assert "sentence" in judged(2, "", "dscale: a\ndscale: b\n", False)
    assert "inf" in judged(0, "takes infs of time", "", False)
    assert "step_s" in wrong_number({"plans": [{"step_s": -0.0}]})
    assert wrong_number({"step_s": float("nan")})
    assert not judged(2, "", "dscale: The batch is 'x'.\n", False)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_command_line_is_answered_or_refused(seed: int, tmp_path: Path) -> None:
    failed = [report(line, problem) for line, problem in Fuzzer(tmp_path, seed).cases(20) if problem]
    assert not failed, "\n".join(failed)


@pytest.mark.slow
def test_an_hour_of_command_lines(tmp_path: Path) -> None:
    """As long as DSCALE_FUZZ_SECONDS says, an hour without it, from DSCALE_FUZZ_SEED on."""
    end = time.monotonic() + float(os.environ.get("DSCALE_FUZZ_SECONDS", "3600"))
    seed, failed = int(os.environ.get("DSCALE_FUZZ_SEED", "1000")), list[str]()
    while time.monotonic() < end:
        folder = tmp_path / str(seed)
        folder.mkdir()
        failed += [report(line, problem) for line, problem in Fuzzer(folder, seed).cases(200) if problem]
        seed += 1
    assert not failed, "\n".join(failed[:20])
