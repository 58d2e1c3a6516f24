"""Files that commands write: whole or not at all, and never in the way of the answer."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dragonscale.blocks.charts import Chart, save_chart
from dragonscale.commands.verify.verify_blocks import page as verification_page
from dragonscale.errors import InputError
from dragonscale.evidence.verify import compiling
from dragonscale.evidence.verify.records import Made, Request
from dragonscale.faces.cli import main
from dragonscale.files import write_file
from tests.cli.verify_reports import AGREEING

ROOT = os.geteuid() == 0
SHARD = ["shard", "A[I_X, J] @ B[J, K]", "--mesh", "X=4"]
ROOFLINE = ["roofline", "bf16[8,8] @ bf16[8,8]", "--on", "v5e"]


def dscale(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dragonscale", *arguments]
    return subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False, **options)  # pyright: ignore


def test_an_existing_file_keeps_its_permissions_and_a_link_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "plan.toml", tmp_path / "plan.toml"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_file(link, "new", "The plan")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o640)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "real" / "later.toml")
    write_file(dangling, "new", "The plan")
    assert (tmp_path / "real" / "later.toml").read_text() == "new"
    longest = tmp_path / ("x" * 255)
    write_file(longest, "new", "The plan")
    assert longest.read_text() == "new"
    assert not list(tmp_path.rglob(".dscale*"))


def _limited(path: Path) -> None:
    """A disk that is full after some bytes."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        write_file(path, "x" * 100_000, "The plan")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)


def _interrupted(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        write_file(path, "half", "The plan")


@pytest.mark.parametrize("fails", [_limited, _interrupted])
def test_what_cannot_be_written_leaves_the_old_file(fails: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("old")
    with pytest.raises((InputError, KeyboardInterrupt)):
        fails(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.toml"]


@pytest.mark.parametrize("name", ["", "no/such/folder/x", "a\0b", ".", pytest.param("x" * 300, id="long")])
def test_a_name_that_is_no_file_is_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match=r"^The plan cannot be written to .*\.$"):
        write_file(name, "x", "The plan")


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_permissions_are_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(InputError, match="Permission denied"):
        write_file(path, "new", "The plan")
    path.chmod(0o644)
    tmp_path.chmod(0o555)
    try:
        write_file(path, "new", "The plan")
    finally:
        tmp_path.chmod(0o755)
    assert path.read_text() == "new"


def test_devices_and_pipes_are_written_to(tmp_path: Path) -> None:
    write_file("/dev/null", "x", "The plan")
    with pytest.raises(InputError, match="No space left"):
        write_file("/dev/full", "x", "The plan")
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"x" * 200_000, "The plan")
    reader.join()
    assert len(read[0]) == 200_000


def test_the_answer_and_a_file_share_stdout_in_order(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("w") as file:
        done = dscale([*ROOFLINE, "--json", "--plot", "/dev/stdout"], stdout=file)
    assert done.returncode == 0
    answer, end = json.JSONDecoder().raw_decode(out.read_text())
    assert "intensity" in str(answer)
    assert "$schema" in json.loads(out.read_text()[end:])


def test_an_answer_is_printed_though_its_files_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    asked = ["train", "gpt2", "--on", "h100:8", "--batch", "64seq", "--seq", "1024", "--top", "1", "--json"]
    flags = ["--plot", "/dev/full", "--timeline", str(tmp_path / "no" / "t.json"), "--save", str(plan)]
    assert main([*asked, *flags]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["plans"]
    assert "The timeline cannot be written" in told.err
    assert "The chart cannot be written to '/dev/full': No space left on device" in told.err
    assert tomllib.loads(plan.read_text())["model"] == "gpt2"


@pytest.mark.parametrize("words", [SHARD, ["--help"]], ids=["answer", "help"])
def test_a_full_stdout_is_one_sentence(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = dscale(words, stdout=full)
    assert done.returncode == 2
    assert done.stderr == "dscale: The answer cannot be printed: No space left on device.\n"


def test_a_closed_pipe_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = dscale(SHARD, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_stdout_at_all_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m dragonscale chips --json >&-"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


HOSTILE = "</script><script>alert(1)</script>\x1b[2J\u202e\x9b31m"


def test_a_name_cannot_run_in_a_page(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    path = tmp_path / "chart.html"
    names = {"values": [{"x": 1, HOSTILE: "<!--<script>"}]}
    encoding = {"x": {"field": "x", "type": "quantitative"}}
    save_chart(Chart({"title": {"text": HOSTILE}, "data": names, "mark": "point", "encoding": encoding}), path)
    page = path.read_text()
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<!--<script>" not in page
    assert page.lower().count("</script>") == page.lower().count("<script")


def test_names_from_files_do_not_reach_the_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = tmp_path / "chip.toml"
    chip.write_text(f"base = 'h100'\nname = 'mine'\ntitle = {json.dumps(HOSTILE)}\n")
    for words in (["chips", str(chip)], ["chips", str(chip), "--json"], ["roofline", ROOFLINE[1], "--on", str(chip)]):
        main(words)
        told = capsys.readouterr()
        shown = told.out + told.err
        assert "alert(1)" in shown
        assert all(one.isprintable() or one == "\n" for one in shown)
    main(["chips", str(chip), "--json"])
    assert json.loads(capsys.readouterr().out)["title"] == HOSTILE


def test_what_was_compiled_is_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was edited, or another of the same name, is compiled anew."""
    compiled: list[str] = []

    def run(request: Request, *_: object) -> Made:
        compiled.append(request.model)
        return Made({}, float(len(compiled)), 0.0)

    monkeypatch.setenv("DRAGONSCALE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "_run", run)
    monkeypatch.setattr(compiling, "check_installed", lambda _: None)
    request = Request("train", "config.toml", "chip.toml:8", "fsdp=8", 8, 1024)
    for folder, layers, hbm in (("a", 2, 80), ("a", 2, 80), ("a", 4, 80), ("a", 2, 80), ("b", 4, 80), ("b", 4, 96)):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        Path("config.toml").write_text(f'base = "gpt2"\nname = "mine"\nn_layer = {layers}\n')
        Path("chip.toml").write_text(f'base = "h100"\nname = "mygpu"\n[memory.hbm]\ncapacity = "{hbm}GB"\n')
        compiling.compile_apart(request)
    assert len(compiled) == 3  # two layers, four, and four with more memory


def test_a_name_cannot_run_in_a_verification_either() -> None:
    request = msgspec.structs.replace(AGREEING.request, model=HOSTILE, plan="<script>", slice="<img src=x>")
    page = verification_page(msgspec.structs.replace(AGREEING, request=request))
    assert "alert(1)" in page
    assert "<script" not in page
    assert "<img" not in page
