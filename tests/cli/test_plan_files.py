"""Plan files handed from command to command: what one saves the others read, from any folder."""

import json
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.questions.verify import VerifyQuestion
from dragonscale.commands.train.train_question import read_question as read_training
from dragonscale.commands.train.tuned import usual_step
from dragonscale.commands.verify.verify_question import read_question
from dragonscale.faces.cli import main
from dragonscale.runtime.train.settings import RunSettings, read_order
from dragonscale.training.plan.plan_file import RUN, load_training_file

NAME = "my model é"
OWN = 'mine "own"\t'
PLAN = '{}\n[plan]\nfsdp = 8\nremat = "block"\ndtype = "fp8"\n'


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and a chip of its own, half a preset's layers and twice its bandwidth."""
    (tmp_path / OWN).mkdir()
    (tmp_path / OWN / "llama3-8b.toml").write_text(f'base = "llama3-8b"\nname = "{NAME}"\nnum_hidden_layers = 16\n')
    (tmp_path / OWN / "chip.toml").write_text('base = "h100"\nname = "mygpu"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    assert main([*words, "--json"]) in (0, 4)
    told = capsys.readouterr()
    return json.loads(told.out), told.err


@pytest.mark.parametrize(
    ("asked", "name", "instead"),
    [
        ("train gpt2 --on h100:1 --batch 8seq --seq 1024 --top 1", "olmo.json", "olmo.toml"),
        ("serve gpt2 --on h100:1 --batch 8 --prompt 128 --output 128", "llama3.1", "llama3.1.toml"),
    ],
)
def test_a_plan_is_saved_only_to_a_name_that_other_commands_read(
    asked: str,
    name: str,
    instead: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*asked.split(), "--save", name]) == 2
    told = capsys.readouterr().err
    assert f"A plan is saved as TOML, and '{name}' does not end in .toml; write {instead}." in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", [OWN, "elsewhere/plans"])
def test_a_saved_training_plan_needs_nothing_else(
    folder: str, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / folder).mkdir(parents=True, exist_ok=True)
    asked = ["train", f"{OWN}/llama3-8b.toml", "--on", f"{OWN}/chip.toml:8", "--batch", "64seq", "--seq", "4096"]
    further = ["--dtype", "fp8", "--tokens", "1T", "--price", "2/h", "--stack", "torchtitan", "--top", "1"]
    saved, _ = answered([*asked, *further, "--save", f"{folder}/p.toml"], capsys)
    written = tomllib.loads((own / folder / "p.toml").read_text())
    assert (written["model"] == "./llama3-8b.toml") == (folder == OWN)
    monkeypatch.chdir("/")
    path = str(own / folder / "p.toml")
    again, notes = answered(["train", "--plan", path, "--alone"], capsys)
    assert notes == ""
    assert (again["model"], again["slice"]) == (NAME, "mygpu:8")
    for name in ("plan", "step_s", "cost_usd", "days", "stack"):
        assert again["plans"][0][name] == saved["plans"][0][name]

    changed, notes = answered(
        ["train", "--plan", path, "--alone", "--batch", "128seq", "--dtype", "bf16", "--remat", "block"], capsys
    )
    assert changed["workload"]["sequences"] == 128
    assert (changed["plans"][0]["plan"]["dtype"], changed["plans"][0]["plan"]["remat"]) == ("bf16", "block")
    for said in ("64seq for --batch; 128seq is taken", "fp8 for --dtype; bf16 is taken", "for --remat; block is taken"):
        assert said in notes

    request = read_question(VerifyQuestion(path)).request
    assert (request.program, request.batch, request.sequence) == ("train", 64, 4096)
    assert Path(request.model).name == "llama3-8b.toml"
    order = read_order(path, changes={"data": ["x.bin"], "steps": 1, "dtype": "bf16"})
    assert (order.run.batch, order.run.seq, order.slice) == (64, 4096, request.slice)


def test_a_saved_serving_plan_keeps_its_own_model(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["serve", f"{OWN}/llama3-8b.toml", "--on", f"{OWN}/chip.toml:1", "--prompt", "512", "--output", "64"]
    served, _ = answered([*asked, "--batch", "8", "--save", f"{OWN}/s.toml"], capsys)
    monkeypatch.chdir("/")
    found, _ = answered(["simulate", str(own / OWN / "s.toml"), "--requests", "200"], capsys)
    assert found["model"] == NAME
    assert found["latency"]["tpot_s"]["mean"] == pytest.approx(served["configs"][0]["tpot_s"], rel=0.25)


STRAY = {
    "entry": ('modle = "gpt2"', "did you mean 'model'"),
    "table": ("[rnu]\nbatch = 8", "did you mean 'run'"),
    "setting of a run": ("[run]\nbacth = 8", "did you mean 'batch'"),
    "batch": ("[run]\nbatch = 1.5", "write a number of sequences"),
    "nan": ("skew = nan", "from 1 to 1000"),
    "model": ("model = 3", "write it as text"),
    "digits": (f"[run]\nseq = {'9' * 5000}", "not valid TOML"),
}


@pytest.mark.parametrize("case", STRAY)
def test_what_a_plan_file_should_not_say_is_refused(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stray, expected = STRAY[case]
    path = tmp_path / "p.toml"
    path.write_text(PLAN.format(stray))
    given = ["--on", "h100:8", "--batch", "64seq", "--seq", "1024"]
    assert main(["train", "gpt2", *given, "--plan", str(path)]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "flags", "expected"),
    [
        ("tp8 fp8", ["--dtype", "bf16"], "has dtype=fp8, and --dtype is bf16"),
        ("tp8 block", ["--remat", "none,selective"], "has remat=block, and --remat is none,selective"),
        ("tp8", ["--fix", "tp4"], "has tensor=8, and --fix says tensor=4"),
        ("tp8", ["--rank", "cost"], "--rank cost orders plans"),
    ],
)
def test_flags_that_contradict_a_plan_are_refused(
    plan: str, flags: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--on", "h100:8", "--batch", "64seq", "--seq", "1024", "--alone"]
    assert main(["train", "llama3-8b", *given, "--plan", plan, *flags]) == 2
    assert expected in capsys.readouterr().err


def test_a_path_with_a_word_in_it_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dtype").mkdir()
    found = []
    for path in (tmp_path / "p.toml", tmp_path / "dtype" / "p.toml"):
        path.write_text(PLAN.format('model = "llama3-8b"\nslice = "h100:8"') + "[run]\nbatch = 64\nseq = 1024\n")
        found.append(answered(["train", "--plan", str(path), "--alone"], capsys)[0]["plans"][0])
    assert found[0] == found[1]
    assert found[0]["plan"]["dtype"] == "fp8"


def test_a_question_says_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "llama3-8b", "--seq", "1024"]) == 2
    assert "--on, the slice to run on" in capsys.readouterr().err


def test_what_nobody_says_of_a_step_is_usual_and_told() -> None:
    """64Ki tokens a chip up to 4Mi, which every chip gets as many of; sequences of the model's context up to 8192."""
    for slice_, model, step in (
        ("h100:8", "llama3-8b", (64, 8192)),
        ("h100:8", "llama2-7b", (128, 4096)),
        ("h100:96", "llama3-8b", (480, 8192)),
        ("h100:512", "llama3-8b", (512, 8192)),
    ):
        question, notes = usual_step(TrainQuestion(model, slice_))
        assert (question.batch, question.seq) == (f"{step[0]}seq", f"{step[1]}")
        assert notes[0].startswith(f"--batch {step[0]}seq and --seq {step[1]} taken, as pretraining often has")
    assert read_training(TrainQuestion("llama3-8b", "h100:8", tokens="1000steps")).job.tokens == 1000 * 64 * 8192


def test_the_names_of_a_run_are_those_it_takes() -> None:
    assert set(RUN) == {field.name for field in fields(RunSettings)}


def test_a_file_without_tables_is_settings(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('model = "gpt2"\ntp = 8\n')
    found = load_training_file(path)
    assert (found.model, found.plan.tensor, found.named) == ("gpt2", 8, {"tensor"})


LOADED = """
import sys
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.ask_train import ask
from dragonscale.listener import Listener
ask(TrainQuestion(plan=sys.argv[1], model="llama3-8b", on="h100:8", batch="64seq", seq="4096", alone=True), Listener())
targets = {"evidence", "evidence.xla", "evidence.xla.gpu_target"}  # the names of chips that XLA can be told about
modules = {name.removeprefix("dragonscale.") for name in sys.modules if name.startswith("dragonscale.")} - targets
rooms = {name.split(".")[0] for name in modules}
print(sorted(rooms & {"exports", "serving", "simulation", "evidence", "web"}))
"""


@pytest.mark.parametrize(
    ("plan", "rooms"), [("fsdp8", "[]"), ("own.toml", "[]"), ("bare.toml", "['exports', 'serving']")]
)
def test_a_plan_of_our_own_loads_no_exporter(plan: str, rooms: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[plan]\nfsdp = 8\n")
    (tmp_path / "bare.toml").write_text("fsdp = 8\n")  # whose settings may be another software's
    done = subprocess.run(
        [sys.executable, "-c", LOADED, plan], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120
    )
    assert done.stdout.strip() == rooms
