"""What people type who know other software, and names that are mistyped: what the refusal says to type."""

import shlex

import pytest

from dragonscale.errors import FAULT, INFEASIBLE, INTERRUPTED, MISSED, TERMINATED, WRONG_INPUT
from dragonscale.faces.cli.app import run
from dragonscale.faces.cli.arguments import other_words
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.serving.engine.legality import QUANTIZE
from dragonscale.training.plan.stack import stacks

FLAGS = {
    "train llama3-8b --gpus 8xh100": "here it is --on 8xh100.",
    "train llama3-8b --global-batch-size 64": "here it is --batch 64seq.",
    "train llama3-8b --zero 3": "here it is --fix z3.",
    "serve llama3-8b --qps=30": "here it is --rate 30/s.",
    "serve llama3-8b --tensor-parallel-size 4": "here it is --plan tp4.",
    "simulate llama3-8b --request-rate": "here it is --rate.",
    "train llama3-8b --batch-size 64": "here it is --batch 64seq.",
    "train llama3-8b --max-model-len 8192": "here it is --seq 8192.",
    "serve llama3-8b --max-model-len 8192": "it is prompt and output together, which are two flags here: --prompt",
    "simulate llama3-8b --context-length=8192": "which are two flags here: --prompt and --output.",
    "train llama3-8b --nnodes 4": "'--nnodes'; --on takes chips, not nodes: 4 nodes of 8 H100 are h100:32.",
    "train llama3-8b --num-gpus 8": "'--num-gpus'; --on takes the chip and how many of them, such as h100:8.",
    "train llama3-8b --gpus 8": "'--gpus'; --on takes the chip as well, such as h100:8.",
    "train llama3-8b --steps 1000": "a run's length is given in tokens, such as --tokens 15T.",
    "serve llama3-8b --quantization awq": "here it is --quantize int4.",
    "serve llama3-8b --quantization fp8": "here it is --quantize fp8.",
    "serve llama3-8b --kv-cache-dtype fp8_e4m3": "here it is --kv-dtype fp8.",
}
COMMANDS_OF_OTHERS = {
    "finetune x": "`dscale train MODEL --method lora`",
    "plan": "`dscale train`, serving by `dscale serve`",
    "kv": "`dscale models NAME --seq 8192`",
    "trian": "did you mean 'train'? Known: calc, calibrate",
}
FAR = ("finetune", "memory", "plan", "fit", "cost")
PLANS = {
    "diloco": "is not a setting. A plan has degrees, written tp4 or tensor=4",
    "ep4 etp1": "etp is on or off, write etp=true.",
    "fsdp8 remat": "give its value, such as remat=none.",
    "fdsp8": "did you mean 'fsdp8'?",
}


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(shlex.split(line)) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("line", [*FLAGS, *COMMANDS_OF_OTHERS])
def test_the_refusal_says_what_is_typed_here(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (FLAGS | COMMANDS_OF_OTHERS)[line] in refusal(line, capsys)


@pytest.mark.parametrize("word", FAR)
def test_nothing_far_is_suggested(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in refusal(word, capsys)


def test_the_list_of_commands_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal("frobnicate", capsys)
    assert all(name.split()[0] in told for name in COMMANDS)


def test_flags_of_others_are_said_by_flags_that_exist() -> None:
    known = {field.flag for command in COMMANDS.values() for field in command.fields()}
    said = {form.split()[0] for forms in other_words()["flags"].values() for form in forms}
    needed = {flag for rows in other_words()["explained"].values() for flag, _ in rows}
    assert said | needed <= known
    assert set(other_words()["values"]) <= set(other_words()["flags"])
    assert {*other_words()["values"]["--quantization"].values()} <= {*QUANTIZE}
    assert not known & set(other_words()["commands"])


@pytest.mark.parametrize("name", ["m9-max", "cpu", "a33"])
def test_no_other_chip_is_guessed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal(f"chips {name}", capsys)
    assert "did you mean" not in told
    assert "`dscale chips` lists all" in told


def test_a_model_that_is_not_there_names_where_all_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no model 'nosuch'. `dscale models` lists all" in refusal("models nosuch", capsys)
    assert "did you mean 'llama3-70b'? Similar: llama1-30b" in refusal("models lama3-70b", capsys)


def test_stacks_are_listed_where_none_is_like_what_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """No command lists them."""
    line = "train llama3-8b --on h100:8 --batch 64seq --seq 8192 --stack"
    told = refusal(f"{line} zzz", capsys)
    assert all(name in told for name in stacks())
    assert f"Similar names, of {len(stacks())} in all: megatron" in refusal(f"{line} megatron-zzz", capsys)


def test_help_has_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split()).partition("Exit codes: ")[2]
    codes = {int(word) for word in told.replace(",", " ").split() if word.isdigit()}
    assert codes >= {0, FAULT, WRONG_INPUT, INFEASIBLE, MISSED, INTERRUPTED, TERMINATED}


@pytest.mark.parametrize("plan", PLANS)
def test_an_unknown_word_of_a_plan_gets_a_true_sentence(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"train llama3-8b --on h100:8 --batch 64seq --seq 8192 --plan '{plan}'"
    assert PLANS[plan] in refusal(line, capsys)
    fixed = refusal(f"train llama3-8b --on h100:8 --batch 64seq --seq 8192 --fix '{plan}'", capsys)
    assert PLANS[plan] in fixed


def test_a_serving_plan_says_what_its_words_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "written tp8 or tensor=8 (tp (tensor)" in refusal("serve llama3-8b --on h100:1 --plan diloco", capsys)
    assert "did you mean 'tensor8'?" in refusal("serve llama3-8b --on h100:8 --plan tensr8", capsys)


def test_counts_may_be_in_small_letters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--params", "8b", "--on", "h100:8"]) == 0
    assert "8B parameters" in capsys.readouterr().out
    assert "`dscale estimate --params 8b`" in refusal("train 8b --on h100:8 --batch 64seq --seq 8192", capsys)


def test_a_comparison_names_the_command_of_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal("compare llama2-13b --on a100-40gb:4 tp4 'tp2 pp2'", capsys)
    assert "`dscale compare llama2-13b tp4 'tp2 pp2' --on a100-40gb:4 --prompt 2048 --output 512`" in told
    assert "`dscale compare llama2-13b tp4 'tp2 pp2' --on a100-40gb:4 --batch 4M --seq 8192`" in told
