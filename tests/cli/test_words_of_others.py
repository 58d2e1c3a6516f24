"""What people type who know other software, and names that are mistyped: what the refusal says to type."""

import shlex
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.commands.questions.synonyms import command_meant, spelled, table
from dragonscale.errors import FAULT, INFEASIBLE, INTERRUPTED, MISSED, TERMINATED, WRONG_INPUT, InputError
from dragonscale.faces.cli.app import run
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.faces.cli.defaults import with_defaults
from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.serving.engine.legality import read_quantize
from dragonscale.training.plan.stack import stacks
from dragonscale.web.words import question_of

FLAGS = {
    "serve llama3-8b --max-model-len": "--max-model-len needs a value.",
    "simulate llama3-8b --context-length=8192": "which are two flags here: --prompt and --output.",
    "train llama3-8b --nnodes 4": "--on takes chips, not nodes: 4 nodes of 8 H100 are h100:32.",
    "train llama3-8b --num-gpus 8": "--on takes the chip as well, such as h100:8.",
    "train llama3-8b --gpus 8": "--on takes the chip as well, such as h100:8.",
    "train llama3-8b --on h100:8 --gpus 4": "--gpus alone does not say which chips; --on takes the chip as well",
    "train llama3-8b --on h100:8 --tp 2 --tp-size 4": "--tp and --tp-size give tp two values, 2 and 4",
    "train llama3-8b --on h100:8 --seq 4096 --block-size 2048": "--block-size and --seq are the same here",
    "train llama3-8b --on h100 --gradient-accumulation-steps 4": "those of one device, times accumulation steps",
    "models llama1-65b --dtype q4_0": "counted by `dscale estimate MODEL --weights q4_0`",
    "train llama3-8b -x": "has no flag '-x'. See",
    "serve llama3-8b --speculative-config {}": "--drafts 3 says how many tokens are drafted",
}
READ = {
    "train --model-path llama3-8b --gpus 8xh100": (
        {"model": "llama3-8b", "on": "8xh100"},
        "--gpus is read as --on 8xh100.",
    ),
    "train x --on h100 --nnodes 4 --nproc-per-node 8": ({"on": "h100:32"}, "are read as --on h100:32."),
    "train x --on h100:8 --num-gpus 8": ({"on": "h100:8"}, ""),
    "train x --global-batch-size 64": ({"batch": "64seq"}, "is read as --batch 64seq."),
    "train x --batch-size 64seq": ({"batch": "64seq"}, ""),
    "train x --zero 3": ({"fix": "z3"}, "--zero is read as --fix z3."),
    "train x --fix z1 --tp 2": ({"fix": "z1,tp2"}, ""),
    "train x --plan fsdp4 --tp 2": ({"plan": "fsdp4,tp2"}, "--tp is read as --plan tp2."),
    "train x --on h100:8 --tp 2 --per-device-train-batch-size 2 --gradient_accumulation_steps 8": (
        {"batch": "64seq", "fix": "tp2,mb2"},
        "x 4 data-parallel ranks is read as --batch 64seq.",
    ),
    "train x --batch 64seq --gradient-accumulation-steps 8": ({"batch": "64seq"}, "follows from the batch"),
    "train x --steps 1000": ({"tokens": "1000steps"}, "--steps is read as --tokens 1000steps."),
    "train x --gradient-checkpointing --seq 1k": ({"remat": "block", "seq": "1k"}, ""),
    "train x --gradient-checkpointing=false": ({}, ""),
    "train x --load-in-4bit true --lora-r 64": ({"method": "qlora", "lora_rank": "64"}, ""),
    "train x --learning-rate 1e-4": ({}, "--learning-rate changes nothing that is planned."),
    "serve x --qps=30": ({"rate": "30/s"}, "--qps is read as --rate 30/s."),
    "serve x --request-rate 30/s": ({"rate": "30/s"}, ""),
    "serve x --concurrency 64": ({"batch": "64"}, "--concurrency is read as --batch 64."),
    "simulate x --concurrency 64": ({"clients": "64"}, "--concurrency is read as --clients 64."),
    "serve x -tp 4 -pp 2": ({"plan": "tp4,pp2"}, "-tp and -pp are read as --plan tp4,pp2."),
    "serve x --on h100:8 --tp 8 --enable-expert-parallel": ({"plan": "tp8,ep8"}, ""),
    "serve x --max-model-len 8192": ({"max_context": "8192"}, "--max-model-len is read as --max-context 8192."),
    "serve x -ngl 28": ({"gpu_layers": "28"}, "-ngl is read as --gpu-layers 28."),
    "serve x --cpu-moe": ({"n_cpu_moe": "999"}, "--cpu-moe is read as --n-cpu-moe 999."),
    "serve x --quantization awq_marlin": ({"quantize": "awq"}, ""),
    "serve x --kv-cache-dtype fp8_e4m3": ({"kv_dtype": "fp8"}, ""),
    "models x --context 32k": ({"seq": "32k"}, ""),
}
COMMANDS_OF_OTHERS = {
    "plan": "`dscale train MODEL --on h100:8`, serving by `dscale serve MODEL --on h100:8`",
    "memory llama3-8b": "`dscale train llama3-8b --on h100:8` and `dscale serve llama3-8b --on h100:8`",
    "trian": "did you mean 'train'? Known: calc, calibrate",
}
FAR = ("memory", "plan", "fit", "cost", "quantum")
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


@pytest.mark.parametrize("line", READ)
def test_flags_of_others_are_read_as_what_says_the_same_here(line: str) -> None:
    command, *words = shlex.split(line)
    reading = read_arguments(COMMANDS[command].fields(), words, command)
    values, note = READ[line]
    given = {name: value for name, value in reading.values.items() if value != "x"}
    assert values.items() <= given.items()
    assert set(given) <= {*values, "on", "plan"}
    assert note in " ".join(reading.notes)


def test_commands_of_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpu", "h100"]) == 0
    printed = capsys.readouterr()
    assert "`gpu` is read as `dscale chips`." in printed.err
    assert "H100" in printed.out
    assert command_meant("finetune", ["x", "--method", "lora"]).command == ("train",)
    assert command_meant("finetune", ["x"]).command == ("train", "--method", "full")


def test_the_library_reads_the_same_names() -> None:
    answer = ds.serve("llama3-8b", gpus="h100:1", input_len=512, max_model_len=8192, tensor_parallel_size=1)
    assert answer.workload.prompt == 512
    assert 'tensor_parallel_size is read as plan="tp1".' in answer.notes_beside
    with pytest.raises(TypeError, match="no parameter 'speculative_config'; drafts=\"3\" says how many tokens"):
        ds.serve("llama3-8b", on="h100:1", speculative_config={"num_speculative_tokens": 3})
    with pytest.raises(TypeError, match="no parameter 'frobnicate'"):
        ds.train("llama3-8b", frobnicate=1)


def test_agents_pages_and_files_of_defaults_read_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tools()["serve"].question({"model": "llama3-8b", "on": "h100:1", "kv_cache_dtype": "fp8"})
    assert asked.kv_dtype == "fp8"
    assert question_of("serve", {"model_path": "llama3-8b", "on": "h100:1", "isl": 512}).prompt == "512"
    with pytest.raises(InputError, match="looks like a file"):
        question_of("simulate", {"model": "llama3-8b", "dataset_path": "/etc/passwd"})
    (tmp_path / "dragonscale.toml").write_text('gpus = "h100:8"\n[train]\nmicro_batch_size = 2\n')
    monkeypatch.setenv("DRAGONSCALE_CONFIG", str(tmp_path / "dragonscale.toml"))
    assert with_defaults(COMMANDS["train"], ["x"]) == ["x", "--on=h100:8", "--fix=mb2"]
    assert with_defaults(COMMANDS["train"], ["x", "--gpu", "v5p:2x2x1"])[3:] == ["--fix=mb2"]


@pytest.mark.parametrize("word", FAR)
def test_nothing_far_is_suggested(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in refusal(word, capsys)


def test_the_list_of_commands_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal("frobnicate", capsys)
    assert all(name.split()[0] in told for name in COMMANDS)


def test_the_table_says_only_what_exists() -> None:
    known = {flag for command in COMMANDS.values() for flag in spelled(command.fields())}
    rows = [form for forms in table()["flags"].values() for form in forms]
    forms = [form if isinstance(form, str) else form["write"] for form in rows]
    besides = {form["with"] for form in rows if not isinstance(form, str)}
    needed = {flag for rows in table()["explained"].values() for flag, _ in rows}
    assert {word for form in forms for word in form.split()[::2]} | besides | needed <= known
    assert set(table()["values"]) <= set(table()["flags"])
    assert all(map(read_quantize, table()["values"]["--quantization"].values()))
    commands = {name.split()[0] for name in COMMANDS}
    assert not commands & {*table()["commands"], *table()["either"]}
    assert {words.split()[0] for words in table()["commands"].values()} <= commands


@pytest.mark.parametrize("name", ["m9-max", "cpu", "a33"])
def test_no_other_chip_is_guessed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal(f"chips {name}", capsys)
    assert "did you mean" not in told
    assert "`dscale chips` lists all" in told


def test_a_model_that_is_not_there_names_where_all_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no model 'nosuch'. `dscale models` lists all" in refusal("models nosuch", capsys)
    assert "did you mean 'llama3-70b'? Similar: llama3-70b" in refusal("models lama3-70b", capsys)


def test_stacks_are_listed_where_none_is_like_what_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """No command lists them."""
    line = "train llama3-8b --on h100:8 --batch 64seq --seq 8192 --stack"
    told = refusal(f"{line} zzz", capsys)
    assert all(name in told for name in stacks())
    assert f"Similar names, of {len(stacks())} in all: megatron" in refusal(f"{line} megatron-zzz", capsys)


def test_help_has_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "all"]) == 0
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
    assert run(["models", "70b"]) == 0
    printed = capsys.readouterr()
    assert "70b is taken as llama3.1-70b, a dense preset of that size; `dscale estimate --params 70b`" in printed.err
    assert "`dscale estimate --params 9000b`" in refusal("train 9000b --on h100:8 --batch 64seq --seq 8192", capsys)


def test_a_comparison_without_lengths_is_of_serving_unless_something_is_of_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(shlex.split("compare llama2-13b --on a100-40gb:4 tp4 'tp2 pp2'")) == 0
    printed = capsys.readouterr()
    assert "2 sides of serving" in printed.out
    assert "Compared for serving; --batch 4M --seq 8192 compares training." in printed.err
    assert run(shlex.split("compare llama3-8b --on h100:8 fsdp8 'tp2 fsdp4'")) == 0
    assert "2 sides of training" in capsys.readouterr().out


def test_layers_that_llama_cpp_leaves_to_the_cpu_are_flags_too() -> None:
    asked = {"model": "mixtral-8x7b", "on": "rtx3090:1", "quantize": "q4_k_m", "batch": 1}
    by_flag, by_setting = ds.serve(**asked, gpu_layers=26), ds.serve(**asked, engine="llama.cpp,offload.layers=6")
    assert by_flag.configs[0].tpot_s == by_setting.configs[0].tpot_s
    assert by_flag.workload.engine == "llama.cpp,offload.layers=6"
    with pytest.raises(InputError, match="the engine is vllm"):
        ds.serve(**asked | {"quantize": ""}, engine="vllm", n_cpu_moe=4)


def test_layers_left_to_the_cpu_are_for_one_card() -> None:
    asked = {"model": "llama3-70b", "on": "rtx3090", "quantize": "q4_k_m"}
    assert ds.serve(**asked, gpu_layers=30).configs[0].chips == 1
    assert ds.serve(**asked).configs[0].chips > 1


@pytest.mark.parametrize(
    ("engine", "on", "own"),
    [("mlx", "m3max:1", "mlx4"), ("exllamav2", "rtx4090:1", "exl2_4"), ("llama.cpp", "rtx4090:1", "q4_k_m")],
)
def test_int4_is_the_four_bits_of_the_engine(engine: str, on: str, own: str) -> None:
    asked = {"on": on, "engine": engine, "batch": 1}
    report = ds.serve("llama3.1-8b", quantize="int4", **asked)
    assert report.configs[0].dtypes["weights"] == own
    assert any(f"--quantize int4 with {engine} is {own}" in note for note in report.notes_beside)
