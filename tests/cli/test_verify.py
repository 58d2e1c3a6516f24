"""`dscale verify`: what it asks the compiler for, what it prints, and how it ends. No compiler runs here: what one
would have answered is in `verify_reports`."""

import importlib.util
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from dragonscale.blocks import terminal
from dragonscale.commands.questions.verify import VerifyQuestion
from dragonscale.commands.verify.ask_verify import Verification, with_fitting_plan
from dragonscale.commands.verify.verify_blocks import page
from dragonscale.commands.verify.verify_question import read_question
from dragonscale.commands.verify.verify_words import axis_rows, closing, totals
from dragonscale.evidence.verify.records import Request, VerifyLine, VerifyReport
from dragonscale.faces.cli import main
from dragonscale.installing import install_hint
from dragonscale.training.plan.plan_file import parse_plan
from tests.cli.verify_reports import AGREEING, DIFFERING, FAILED, FULL, instead_of_compiling

REPORTS = {"agreeing": AGREEING, "differing": DIFFERING, "full": FULL, "failed": FAILED}
ASKED = ["verify", "fsdp=8,remat=block", "--model", "llama3-8b", "--on", "h100:8", "--batch", "16seq", "--seq", "8192"]
EXPLAINED = msgspec.structs.replace(
    AGREEING, verdict="explained", axes=(DIFFERING.axes[0], AGREEING.axes[1]), request=DIFFERING.request
)


def text_of(report: VerifyReport) -> str:
    return str(Verification.of(report))


@pytest.mark.parametrize(
    ("report", "code"),
    [(AGREEING, 0), (EXPLAINED, 0), (DIFFERING, 4), (FULL, 3), (FAILED, 4)],
    ids=lambda one: str(one)[:9],
)
def test_how_it_ends(
    report: VerifyReport, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instead_of_compiling(monkeypatch, lambda _: report)
    assert main(ASKED) == code
    assert capsys.readouterr().out == text_of(report) + "\n"
    assert main([*ASKED, "--json"]) == code
    assert msgspec.json.decode(capsys.readouterr().out, type=VerifyReport) == report


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [60, 80])
def test_text_fits_the_terminal(name: str, width: int) -> None:
    text = terminal.text_of(Verification.of(REPORTS[name]).sheet(), width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_text_lays_both_sides_out() -> None:
    text = text_of(DIFFERING)
    found = {
        name: re.search(rf"^ *{name} +(.*)$", text, re.MULTILINE)
        for name in ("peak memory", "sent over fsdp", "all_reduce")
    }
    assert {name: match and match[1].split() for name, match in found.items()} == {
        "peak memory": ["30.1GB", "33.9GB", "1.126", "differs"],
        "sent over fsdp": ["18.06GB", "20.4GB", "1.130", "explained"],
        "all_reduce": ["0B", "5.26GB", "new"],
    }
    for part in (
        "XLA keeps an AllReduce",
        "only the plan has",
        "only the compiler has",
        "dragonscale/runtime/lines.py:120",
        "hidden or exposed",
        "510ms",
        "ring over 2 torus axes 64 times",
        "1.42s of kernels",
    ):
        assert part in text
    verdict = " ".join(text.split("\n\n")[1].split())
    assert verdict.startswith(
        "verdict differs so The plan and the compiler differ: peak memory +13%, bytes over fsdp and tensor not planned."
    )
    assert "lines.py:120" in verdict


def test_a_plan_that_holds_but_for_its_overlap_says_what_to_count() -> None:
    full = msgspec.structs.replace(AGREEING, request=DIFFERING.request, overlap=DIFFERING.overlap)
    assert closing(full).endswith(
        "In its times count the all_gather over tensor (activation, 20.6GB) as exposed: it was planned hidden."
    )
    assert closing(msgspec.structs.replace(full, overlap=DIFFERING.overlap[:1])).endswith("Change nothing.")


def test_out_of_memory_says_how_much_what_and_what_would_fit() -> None:
    text = " ".join(text_of(FULL).split())
    for part in ("18.22 GiB of the 15.75 GiB", "2.68GB copy.27", "as the planner said", "would fit in 11.2GB."):
        assert part in text
    accepted = msgspec.structs.replace(FULL, fits_planned=True)
    assert "though the planner had accepted it" in " ".join(text_of(accepted).split())


class Tags(HTMLParser):
    """Every tag closed in order, every attribute seen, the text kept."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.names: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.bars: list[float] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag == "span" and self.open[-1] == "div":
            width = re.match(r"width:([\d.]+)%;", dict(attrs)["style"] or "")
            self.bars.append(float(width[1]) if width else -1.0)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data + " "


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_stands_alone_and_has_the_same_numbers(name: str) -> None:
    report, html = REPORTS[name], page(REPORTS[name])
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    assert tags.links == []
    assert not tags.names & {"script", "link", "img", "iframe"}
    assert all(one.op_name in tags.text for one in report.only_compiled)  # one has a tag in it, which is text here
    assert not re.search(r"https?://|@import|url\(", html)
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html
    rows = [*totals(report), *axis_rows(report)]
    for one in [*rows, *(part for row in rows for part in row.below)]:
        assert one.planned in tags.text
        assert one.compiled in tags.text
        assert one.ratio in tags.text
    assert len(tags.bars) == 2 * sum(1 + len(row.below) for row in rows)
    assert all(0 <= width <= 100 for width in tags.bars)


def test_bars_are_in_proportion() -> None:
    fsdp, tensor = axis_rows(AGREEING)
    assert tensor.planned_share == tensor.compiled_share == 1
    assert fsdp.compiled_share == pytest.approx(18.11 / 41.2)
    assert sum(part.planned_share for part in fsdp.below) == pytest.approx(fsdp.planned_share)
    assert totals(AGREEING)[1].compiled_share == pytest.approx(30.9 / 80)


def test_the_page_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instead_of_compiling(monkeypatch, lambda _: AGREEING)
    path = tmp_path / "report.html"
    assert main([*ASKED, "--html", str(path)]) == 0
    assert path.read_text() == page(AGREEING)
    assert "Wrote" in capsys.readouterr().err


def asked(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> Request:
    found = instead_of_compiling(monkeypatch, lambda _: AGREEING)
    assert main(["verify", *arguments]) == 0
    return found[-1]


def test_flags_become_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked(
        *ASKED[1:], "--passes", "full", "--option", "xla_a=1", "--option", "xla_b=two", monkeypatch=monkeypatch
    )
    assert request == Request(
        "train", "llama3-8b", "h100:8", "fsdp=8,remat=block", 16, 8192, "full", options={"xla_a": "1", "xla_b": "two"}
    )


@pytest.mark.parametrize(
    ("batch", "sequences"), [("64Ki", 8), ("65536", 8), ("8seq", 8), ("8 sequences", 8), ("64k", 8), ("4M", 512)]
)
def test_a_training_batch_is_read_as_dscale_train_reads_it(batch: str, sequences: int) -> None:
    question = VerifyQuestion("fsdp=8", "llama3-8b", "h100:8", batch, "8192")
    assert read_question(question).request.batch == sequences


def test_a_serving_batch_counts_sequences() -> None:
    request = read_question(VerifyQuestion("tensor=8", "llama3-8b", "h100:8", "64", "2560", "prefill")).request
    assert (request.program, request.batch, request.sequence) == ("prefill", 64, 2560)


def test_what_train_saved_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.toml"
    flags = ["--on", "h100:8", "--batch", "512Ki", "--seq", "8192", "--plan", "fsdp=4,tensor=2,remat=block"]
    assert main(["train", "llama3-8b", *flags, "--save", str(path)]) == 0
    assert asked(str(path), monkeypatch=monkeypatch).batch == 64
    path.write_text(path.read_text().replace("batch = 64\nseq = 8192\n", "batch = 32\nseq = 4096\n"))
    request = asked(str(path), monkeypatch=monkeypatch)
    assert request == Request("train", "llama3-8b", "h100:8", "fsdp=4,tensor=2,remat=block", 32, 4096)
    assert asked(str(path), "--seq", "2048", "--batch", "64Ki", monkeypatch=monkeypatch).batch == 32


def test_what_serve_saved_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.toml"
    flags = ["--on", "h100:2", "--plan", "tensor=2,weights=fp8,compute=fp8", "--batch", "16"]
    assert main(["serve", "llama3-8b", *flags, "--save", str(path)]) == 0
    request = asked(str(path), "--seq", "2560", monkeypatch=monkeypatch)
    assert request == Request("decode", "llama3-8b", "h100:2", "tensor=2,weights=fp8,compute=fp8", 16, 2560)
    assert asked(str(path), "--seq", "2048", "--program", "prefill", monkeypatch=monkeypatch).program == "prefill"


def changed(flag: str, value: str) -> list[str]:
    place = ASKED.index(flag) + 1
    return [*ASKED[:place], value, *ASKED[place + 1 :]]


WRONG = {
    "no plan": (["verify", " "], "which plan to verify"),
    "no model": (["verify", "fsdp=8", "--on", "h100:8"], "--model"),
    "no slice": (["verify", "fsdp=8", "--model", "llama3-8b"], "--on"),
    "no batch": (["verify", "fsdp=8", "--model", "llama3-8b", "--on", "h100:8", "--seq", "8192"], "--batch 4M"),
    "no length": (["verify", "fsdp=8", "--model", "llama3-8b", "--on", "h100:8", "--batch", "8seq"], "--seq 8192"),
    "unknown model": (changed("--model", "lama3-8b"), "did you mean"),
    "unknown slice": (changed("--on", "h10:8"), "did you mean"),
    "too few chips": (changed("--on", "h100:16"), "is for 8 chips and h100:16 has 16"),
    "no such plan": (["verify", "fsdb=8", *ASKED[2:]], "did you mean 'fsdp'"),
    "no such file": (["verify", "nowhere.toml", *ASKED[2:]], "cannot be read"),
    "no such program": ([*ASKED, "--program", "traning"], "Known: decode, prefill, train."),
    "no such mode": ([*ASKED, "--passes", "quick"], "There is no kind of passes called 'quick'"),
    "no unit of time": ([*ASKED, "--timeout", "900"], "has no unit"),
    "no time at all": ([*ASKED, "--timeout", "0s"], "one second"),
    "no memory": ([*ASKED, "--memory-limit", "1kB"], "100 MB"),
    "half an option": ([*ASKED, "--option", "xla_a"], "name=value"),
    "not a page": ([*ASKED, "--html", "report.txt"], "should end in .html"),
    "serving plan for training": (
        ["verify", "tensor=8,weights=fp8", *ASKED[2:], "--program", "train"],
        "part of a plan",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_sentence(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = instead_of_compiling(monkeypatch, lambda _: AGREEING)
    arguments, part = WRONG[case]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert part in told.err
    assert told.err.count("\n") == 1
    assert compiled == []


TRAIN = ["train", "llama3-8b", "--on", "h100:8", "--batch", "512Ki", "--seq", "8192"]


def test_train_verifies_its_best_plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = instead_of_compiling(monkeypatch, lambda _: DIFFERING)
    arguments = [*TRAIN, "--remat", "block", "--fix", "zero=3,schedule=1f1b,pipe=1"]
    assert main([*arguments, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--verify", "--json"]) == 4
    both = json.loads(capsys.readouterr().out)
    assert set(both) == {*plain, "verification"}
    assert msgspec.convert(both["verification"], VerifyReport) == DIFFERING
    best = plain["plans"][0]["plan"]
    assert compiled[0].program == "train"
    assert (compiled[0].batch, compiled[0].sequence) == (64, 8192)
    assert f"microbatch={best['microbatch']}" in compiled[0].plan or best["microbatch"] == 1
    assert main([*arguments, "--verify"]) == 4
    text = capsys.readouterr().out
    assert "\nmemory" in text
    assert text.endswith("\n\n" + text_of(DIFFERING) + "\n")


def test_train_verifies_the_plan_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = instead_of_compiling(monkeypatch, lambda _: AGREEING)
    assert main([*TRAIN, "--plan", "fsdp=8,remat=block", "--verify"]) == 0
    assert compiled == [Request("train", "llama3-8b", "h100:8", "fsdp=8,remat=block", 64, 8192)]


def test_an_infeasible_plan_stays_infeasible(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instead_of_compiling(monkeypatch, lambda _: FULL)
    assert main([*TRAIN, "--plan", "data=8", "--verify"]) == 3
    assert "cannot run" in (text := capsys.readouterr().out)
    assert text_of(FULL) in text


def test_serve_verifies_a_decode_step(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = instead_of_compiling(monkeypatch, lambda _: AGREEING)
    flags = ["--on", "h100:2", "--plan", "tensor=2", "--batch", "16", "--prompt", "1024", "--output", "256"]
    assert main(["serve", "llama3-8b", *flags, "--verify"]) == 0
    assert compiled == [Request("decode", "llama3-8b", "h100:2", "tensor=2", 16, 1280)]
    assert capsys.readouterr().out.endswith(text_of(AGREEING) + "\n")


@pytest.mark.parametrize("name", ["verify", "sweep"])
def test_the_schema_describes_what_is_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instead_of_compiling(monkeypatch, lambda _: AGREEING)
    grid = tmp_path / "grid.toml"
    grid.write_text('[[serve]]\nmodel = "llama3-8b"\nslice = "h100:1"\nplan = "tensor=1"\nbatch = 8\n')
    assert main([*(ASKED if name == "verify" else ["sweep", str(grid)]), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    schema = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / f"{name}.json").read_text())
    definition = schema["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    assert set(printed) == set(definition["properties"])
    assert set(definition["required"]) <= set(printed)


def test_a_plan_that_would_fit_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The fastest one of the same slice that does, even with as much over the plan as the compiler had here."""
    pytest.importorskip("jax")
    request = Request("train", "llama3-8b", "h100:8", "data=8", 16, 8192)
    full = msgspec.structs.replace(
        FULL,
        request=request,
        limit_bytes=80e9,
        advice="",
        peak=VerifyLine("peak", "bytes", 100e9, 110e9, 0.07, "differs"),
    )
    found = with_fitting_plan(full)
    plan, size = re.fullmatch(r"The plan (\S+) would fit, with ([\d.]+)GB on each chip\.", found.advice).groups()  # type: ignore[union-attr]
    assert parse_plan(plan).chips == 8
    assert 10 < float(size) < 80
    assert with_fitting_plan(AGREEING) is AGREEING
    instead_of_compiling(monkeypatch, lambda _: full)
    assert main(["verify", "data=8", *ASKED[2:]]) == 3
    assert f"{plan} would fit" in " ".join(capsys.readouterr().out.split())


def test_without_the_compiler_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DRAGONSCALE_COMPILER_PYTHON", raising=False)
    for name in ("jax_plugins", "jax_plugins.xla_cuda12", "libtpu"):
        monkeypatch.setitem(sys.modules, name, None)
    for arguments, extra in ((ASKED, "gpu-compiler"), (changed("--on", "v5e:2x4"), "tpu")):
        assert main(arguments) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert install_hint(extra) in told.err
        assert told.err.count("\n") == 1


def really(
    arguments: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> VerifyReport:
    """Verified by the compiler itself, then once more from the cache; nothing else may be said on the way."""
    if importlib.util.find_spec("jax_plugins") is None:
        pytest.skip("XLA's GPU compiler is not installed")
    monkeypatch.setenv("DRAGONSCALE_CACHE", str(cache))
    assert main([*arguments, "--json"]) == 0
    told = capfd.readouterr()
    assert told.err == ""
    report = msgspec.json.decode(told.out, type=VerifyReport)
    assert report.compiled
    assert main([*arguments, "--json"]) == 0
    assert msgspec.json.decode(capfd.readouterr().out, type=VerifyReport) == report
    return report


def test_a_real_decode_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    flags = ["--program", "decode", "--model", "llama3.2-1b", "--on", "h100:2", "--batch", "8", "--seq", "512"]
    report = really(["verify", "tensor=2", *flags], tmp_path, monkeypatch, capfd)
    assert [axis.axes for axis in report.axes] == [("tensor",)]
    assert report.arguments is not None
    assert report.arguments.ratio == pytest.approx(1, rel=2e-3)


@pytest.mark.slow
def test_a_real_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", "llama3.2-1b", "--on", "h100:8", "--batch", "8seq", "--seq", "512"]
    report = really(["verify", "fsdp=4,tensor=2", *flags], tmp_path, monkeypatch, capfd)
    assert {axis.axes for axis in report.axes} == {("fsdp",), ("tensor",), ("fsdp", "tensor")}
