"""`dscale sweep`: grids, processes that die, files that are cut short, and Ctrl-C."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragonscale.blocks.terminal import text_of
from dragonscale.commands.sweep import ask_sweep as sweep_module
from dragonscale.commands.sweep import workers as sweep_pool
from dragonscale.commands.sweep.ask_sweep import read_grid, sweep
from dragonscale.commands.sweep.sweep_blocks import sweep_blocks
from dragonscale.commands.sweep.sweep_records import Entry, SweepAnswer, SweepReport, open_answers, read_answers
from dragonscale.commands.sweep.sweep_rows import flat_rows
from dragonscale.commands.sweep.sweep_tables import BEGIN, END, save_table
from dragonscale.commands.sweep.workers import answer_entry
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.faces.cli import main
from tests.cli.verify_reports import AGREEING, DIFFERING, instead_of_compiling

TRAIN = """
[[train]]
model = "llama3-8b"
slice = "h100:8"
batch = ["512Ki", "1Mi"]
seq = 8192
plan = ["fsdp=8,remat=block", "fsdp=4,tensor=2,remat=block"]
"""
SERVE = """
[[serve]]
model = ["llama3-8b", "lama3-8b"]
slice = "h100:1"
plan = "tensor=1"
batch = 8
"""
VERIFY = """
[[verify]]
program = "train"
model = "llama3-8b"
slice = "h100:8"
plan = ["fsdp=8,remat=block", "fsdp=4,tensor=2,remat=block", "fsdp=3"]
batch = "16seq"
seq = 8192
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(TRAIN + SERVE)
    return path


def test_every_combination_once(grid: Path) -> None:
    entries = read_grid(str(grid))
    assert [entry.command for entry in entries] == ["train"] * 4 + ["serve"] * 2
    assert [(entry.asks["batch"], entry.asks["plan"]) for entry in entries[:4]] == [
        ("512Ki", "fsdp=8,remat=block"),
        ("512Ki", "fsdp=4,tensor=2,remat=block"),
        ("1Mi", "fsdp=8,remat=block"),
        ("1Mi", "fsdp=4,tensor=2,remat=block"),
    ]
    assert entries[4].asks == {"model": "llama3-8b", "on": "h100:1", "plan": "tensor=1", "batch": "8"}
    assert len({entry.key for entry in entries}) == 6
    grid.write_text(TRAIN + TRAIN)
    assert len(read_grid(str(grid))) == 4


def test_what_was_varied_is_shown_where_the_width_is_short() -> None:
    """Rows that only their sequence, or a flag that no table shows, tells apart do not read alike."""
    asks: dict[str, Any] = {"model": "llama3-8b", "slice": "h100:8", "batch": "1Mi", "plan": "fsdp=8,remat=block"}
    found = {"stack": "megatron-core", "step_s": 14.9, "mfu": 0.43, "bound_by": "compute", "failed": ""}
    for name in ("seq", "numerics"):
        rows = [{"command": "train", **asks, name: value, **found} for value in ("4096", "8192")]
        report = SweepReport("", 2, 0, 2, 0, 0.0, rows)
        text = text_of(sweep_blocks(report, detail=False), 64)
        assert name in text
        assert "4096" in text
        assert "8192" in text
    assert "batch" not in text  # alike in all rows, it gives way


WRONG = {
    "no file": (None, "cannot be read"),
    "no TOML": ("[[train]", "TOML"),
    "nothing": ("", "is empty"),
    "no tables": ("train = []", "asks nothing"),
    "other command": ("[[run]]\nmodel = 'a'", "command in the grid"),
    "not a table": ("train = 3", "write [[train]]"),
    "one table": ("[train]\nmodel = 'a'", "write [[train]]"),
    "unknown name": ("[[train]]\nmodle = 'a'", "did you mean 'model'"),
    "missing name": ("[[train]]\nmodel = 'a'\nbatch = '4M'\nseq = 8", "does not say its on"),
    "empty list": ("[[serve]]\nmodel = []", "empty list"),
    "wrong kind": (
        "[[serve]]\nmodel = 'a'\ndisaggregate = 'yes'",
        "[[serve]] table: --disaggregate is 'yes'; it takes true or false",
    ),
    "a table in it": ("[[serve]]\nmodel = 'a'\nbatch = {a = 1}", "it takes text or a number"),
    "infinite": ("[[train]]\nmodel = 'a'\nslice = 'h100:8'\nbatch = 8\nseq = 8\ntop = inf", "a whole number"),
    "endless digits": (f"[[serve]]\nmodel = 'a'\nbatch = {'9' * 5000}", "TOML"),
    "too many": (
        f"[[serve]]\nmodel = 'a'\nbatch = {list(range(400))}\nprompt = {list(range(400))}",
        "more than 100,000",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_bad_grid_is_one_sentence(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, part = WRONG[case]
    path = tmp_path / "grid.toml"
    if text is not None:
        path.write_text(text)
    assert main(["sweep", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert part in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--jobs", "4000"], "from 1 to"),
        (["--table", "rows.xls"], "should end in .csv or .md"),
        (["--out", "no/such/folder/results.jsonl"], "cannot be written"),
        (["--ray", "auto"], "needs Ray: "),
    ],
)
def test_bad_flags_are_refused(
    flags: list[str], part: str, grid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["sweep", str(grid), *flags]) == 2
    assert part in capsys.readouterr().err


def test_a_sweep_answers_fails_and_goes_on(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, table = tmp_path / "results.jsonl", tmp_path / "rows.csv"
    arguments = ["sweep", str(grid), "--out", str(out), "--jobs", "1"]
    assert main([*arguments, "--table", str(table)]) == 4  # one model does not exist
    text = capsys.readouterr().out
    assert "6 entries: 0 known before, 6 answered now, 1 failed" in text
    assert max(map(len, text.splitlines())) <= 80
    lines = out.read_text().splitlines()
    assert len(lines) == 6
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["command"] for row in rows] == ["train"] * 4 + ["serve"] * 2
    assert {row["stack"] for row in rows[:4]} == {"megatron-lm"}
    alone = json.loads(_printed(["serve", "llama3-8b", "--on", "h100:1", "--plan", "tensor=1", "--batch", "8"], capsys))
    assert float(rows[4]["tpot_s"]) == pytest.approx(alone["configs"][0]["tpot_s"], rel=1e-5)
    assert "did you mean" in rows[5]["failed"]

    out.write_text("\n".join([*lines[:3], lines[3][:40]]))  # as a full disk may leave it
    assert main([*arguments, "--json"]) == 4
    again = json.loads(capsys.readouterr().out)
    assert (again["known"], again["answered"], len(again["rows"])) == (3, 3, 6)
    assert sorted(read_answers(str(out))) == sorted(json.loads(line)["key"] for line in lines)
    assert all(json.loads(line) for line in out.read_text().splitlines())

    assert main([*arguments, "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["answered"] == 0
    assert main([*arguments, "--json", "--retry"]) == 4
    assert json.loads(capsys.readouterr().out)["answered"] == 1


def _printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*arguments, "--json"]) == 0
    return capsys.readouterr().out


def test_targets_for_percentiles_are_told_to_be_judged_by_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "grid.toml"
    for target, told in (("p95:30ms", True), ("30ms", False)):
        path.write_text(SERVE.replace(', "lama3-8b"', "") + f'tpot = "{target}"')
        assert main(["sweep", str(path), "--jobs", "1"]) == 0
        assert ("judged by means" in capsys.readouterr().err) == told


def test_a_file_of_something_else_is_left_alone(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "notes.txt"
    out.write_text("my notes\nand more\n")
    assert main(["sweep", str(grid), "--out", str(out)]) == 2
    assert "is no result of a sweep" in capsys.readouterr().err
    assert out.read_text() == "my notes\nand more\n"


def test_the_later_line_counts(tmp_path: Path) -> None:
    out = str(tmp_path / "r.jsonl")
    first, later = SweepAnswer("a", "train", {}, 1.0, failed="no"), SweepAnswer("a", "train", {}, 2.0, answer={})
    for answer in (first, later):
        with open_answers(out) as file:
            file.append(answer)
    assert read_answers(out) == {"a": later}


def test_a_file_belongs_to_one_sweep(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.jsonl"
    with open_answers(str(out)) as file:
        file.append(SweepAnswer("a", "train", {}, 1.0, answer={}))
        assert main(["sweep", str(grid), "--out", str(out)]) == 2
    assert "Another sweep is writing to" in capsys.readouterr().err
    assert list(read_answers(str(out))) == ["a"]


def answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers without processes."""

    def answers(entries: list[Entry], *_: object) -> Generator[SweepAnswer]:
        for entry in entries:
            yield SweepAnswer(entry.key, entry.command, entry.asks, 0.0, failed="not asked")

    monkeypatch.setattr(sweep_module, "pooled", answers)


def test_a_full_disk_ends_a_sweep_in_one_sentence(
    grid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answered_here(monkeypatch)
    assert main(["sweep", str(grid), "--out", "/dev/full"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("dscale: The results cannot be written to '/dev/full': No space left on device; ")
    assert told.err.count("\n") == 1


def test_an_interrupt_that_went_astray_still_stops(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered_here(monkeypatch)

    class Finalized:
        def __del__(self) -> None:  # where Python prints an exception and forgets it
            os.kill(os.getpid(), signal.SIGINT)

    def step(_: int, __: int) -> None:
        with pytest.MonkeyPatch.context() as quiet:
            quiet.setattr(sys, "unraisablehook", lambda _: None)
            Finalized()

    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background job is deaf to Ctrl-C
    try:
        report = sweep(str(grid), progress=step)
    finally:
        signal.signal(signal.SIGINT, heard)
    assert (report.stopped, report.answered) == (True, 1)


def test_a_process_that_dies_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    started = sweep_pool._started
    count = iter(range(10))

    def dying() -> "subprocess.Popen[bytes]":
        if next(count) == 0:
            code = "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 9)"
            return subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, start_new_session=True)
        return started()

    monkeypatch.setattr(sweep_pool, "_started", dying)
    asks = {"model": "llama3-8b", "on": "h100:1", "plan": "tensor=1"}
    entries = [Entry("serve", {**asks, "batch": str(batch)}) for batch in (1, 2, 4)]
    rows = list(sweep_pool.pooled(entries, jobs=1))
    assert ["signal 9" in row.failed for row in rows] == [True, False, False]
    assert [row.answer is None for row in rows] == [True, False, False]


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_whole_lines_and_no_processes(tmp_path: Path, stop: signal.Signals, code: int) -> None:
    grid, out = tmp_path / "grid.toml", tmp_path / "results.jsonl"
    batches = [f"{n}Mi" for n in range(1, 65)]
    grid.write_text(f'[[train]]\nmodel = "llama3-70b"\nslice = "h100:512"\nseq = 8192\nbatch = {batches}\n')
    command = [
        sys.executable,
        "-c",
        "from dragonscale.faces.cli import main; main()",
        "sweep",
        str(grid),
        "--out",
        str(out),
        "--jobs",
        "1",
    ]
    # A script's background job, as this test may be part of, starts its processes deaf to Ctrl-C.
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, heard)
    with process:
        while not (out.exists() and out.read_bytes().count(b"\n")) and process.poll() is None:
            time.sleep(0.05)
        children = _children(process.pid)
        os.kill(process.pid, stop)
        text, notes = process.communicate()
    assert process.returncode == code
    assert ("SIGTERM stopped the sweep; what was answered by then is in --out." in notes) == (stop == signal.SIGTERM)
    assert "the same --out goes on from here" in " ".join(text.split())
    assert 1 <= len(read_answers(str(out))) < 64
    assert children
    assert not any(_runs(child) for child in children)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(one) for one in found.stdout.split()]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def in_process(monkeypatch: pytest.MonkeyPatch, reports: dict[str, VerifyReport]) -> None:
    """Answer verifications here, by their plans, and not in other processes."""
    instead_of_compiling(monkeypatch, lambda request: reports[request.plan])
    monkeypatch.setattr(
        sweep_module, "pooled", lambda entries, _, cached: (answer_entry(one, cached) for one in entries)
    )


def test_verifications_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_process(monkeypatch, {"fsdp=8,remat=block": AGREEING, "fsdp=4,tensor=2,remat=block": DIFFERING})
    grid = tmp_path / "grid.toml"
    grid.write_text(VERIFY)
    assert main(["sweep", str(grid), "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == 1
    assert "is for 3 chips" in found["rows"][2]["failed"]
    score = found["verify"]
    assert score["verdicts"] == {"agrees": 1, "differs": 1}
    peak = next(one for one in score["spreads"] if one["name"] == "peak memory")
    assert peak["worst"] == pytest.approx(33.9 / 30.1 - 1)
    assert peak["median"] == pytest.approx((33.9 / 30.1 + 30.9 / 30.1) / 2 - 1)
    assert found["rows"][0]["wire"] == "fsdp +0.28%; tensor +0.00%"
    assert main(["sweep", str(grid)]) == 4
    text = capsys.readouterr().out
    assert "+12.62%" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_sweep_without_differences_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch, {"fsdp=8,remat=block": AGREEING})
    grid = tmp_path / "grid.toml"
    grid.write_text(VERIFY.replace(', "fsdp=4,tensor=2,remat=block", "fsdp=3"', ""))
    assert main(["sweep", str(grid)]) == 0


def test_a_page_keeps_what_is_around_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch, {"fsdp=8,remat=block": AGREEING, "fsdp=4,tensor=2,remat=block": DIFFERING})
    grid, page = tmp_path / "grid.toml", tmp_path / "page.md"
    grid.write_text(VERIFY)
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    report = sweep(str(grid))
    save_table(report, str(page))
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("The end.\n")
    assert "old" not in text
    assert "| peak memory | 2 |" in text
    assert "is for 3 chips" in text
    save_table(report, str(page))
    assert page.read_text() == text


def test_rays_of_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    grid = tmp_path / "grid.toml"
    grid.write_text(SERVE)
    report = sweep(str(grid), ray="local")
    assert (report.answered, report.failed) == (2, 1)


def test_the_committed_grid_can_be_asked() -> None:
    from dragonscale.commands.questions.verify import VerifyQuestion
    from dragonscale.commands.verify.verify_question import read_question

    entries = read_grid(str(Path(__file__).parents[2] / "docs" / "data" / "verify_sweep.toml"))
    requests = [read_question(VerifyQuestion(**entry.asks)).request for entry in entries if entry.command == "verify"]
    assert len({request.key for request in requests}) == len(requests) == len(entries) >= 55
    assert {request.program for request in requests} == {"train", "prefill", "decode"}
    chips = {request.slice.partition(":")[0] for request in requests}
    assert chips == {"h100", "v5e", "v5p", "v6e", "tpu7x"}
    assert msgspec.json.decode(msgspec.json.encode(requests), type=list) != []


def test_fleets_under_traffic_are_swept_by_seed_and_rate() -> None:
    """Rows of the runs that `dscale simulate` makes; nothing looks for what would hold unless that is asked."""
    table = {"model": "llama3-8b", "slice": "h100:1", "plan": "tensor=1", "replicas": 2, "requests": "200"}
    entries = read_grid({"simulate": [{**table, "rate": ["5/s", "80/s"], "seed": [0, 1]}]})
    answers = [answer_entry(entry) for entry in entries]
    assert not any(answer.failed or (answer.answer or {})["capacity"] for answer in answers)
    rows = flat_rows(entries, {answer.key: answer for answer in answers})
    slow, other, fast, _ = rows
    assert (slow["rate"], slow["seed"], other["seed"], slow["chips"]) == ("5/s", 0, 1, 2)
    assert slow["ttft_s"] != other["ttft_s"]
    assert slow["ttft_s"] < slow["ttft_p99_s"] < fast["ttft_p99_s"]
    assert slow["requests_per_s"] == pytest.approx(5, rel=0.4)
