"""What `dscale export`, `dscale import` and their functions can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ENGINE,
    FILES,
    FORCE,
    MODEL,
    ON,
    PLAN,
    PRICE,
    SOFTWARE,
    STACK,
    Several,
    Switch,
    Text,
    Thing,
)

_PLAN = Thing(
    "A file that train or serve --save wrote, a plan (tp8 pp4 dp16), or the config or command of another software.",
    value="PLAN",
    group=PLAN,
    place=True,
    offers="files",
)


@dataclass(frozen=True)
class ExportQuestion:
    """A plan to write down for the software that runs it; what is left out is taken from the plan file."""

    plan: Thing = _PLAN
    to: Several = Several(
        "The software (megatron, torchtitan, maxtext, deepspeed, accelerate, vllm, sglang, trtllm …), what launches it "
        "(shell, slurm, kubernetes, skypilot), or both: megatron,slurm. Or a load test: vllm-bench, "
        "sglang-bench, genai-perf.",
        value="TARGET",
        group=SOFTWARE,
        offers="targets",
    )
    out: Text = Text(
        "Write the files into this folder; printed without it.", default="", value="DIR", group=FILES, offers="files"
    )
    model: Thing = MODEL.but(default="", place=False)
    on: Thing = ON.but(default="")
    batch: Text = Text(
        "Training: tokens of a step (4M), or sequences (512seq). Serving: sequences of a replica.",
        default="",
        value="TOKENS|SEQS",
    )
    seq: Text = Text("Training: tokens of a sequence.", default="", value="TOKENS")
    tokens: Text = Text("Training: tokens of the whole run (15T).", default="", value="TOKENS")
    prompt: Text = Text("Serving: tokens of a prompt.", default="", value="TOKENS")
    output: Text = Text("Serving: tokens of an answer.", default="", value="TOKENS")
    rate: Text = Text("Serving: requests that come (20/s).", default="", value="RATE")
    stack: Text = STACK.but(about="The stack of a plan that names none; told by the target without it.", default="")
    engine: Text = ENGINE.but(about="The engine of a plan that names none; told by the target without it.")
    price: Text = PRICE
    overwrite: Switch = Switch("Write over files that are there already.", group=FILES)
    force: Switch = FORCE.but(about="Write a plan that does not fit or that the software refuses, and say so.")


@dataclass(frozen=True)
class ImportQuestion:
    """The config or command of another software, to be read as a plan."""

    config: Thing = Thing(
        "A config, a script, a folder of an export, or a command as text (vllm serve …, torchrun … pretrain_gpt.py …).",
        value="CONFIG",
        group=PLAN,
        place=True,
        offers="files",
    )
    model: Thing = MODEL.but(default="", place=False, about="The model, where the config does not say it.")
    on: Thing = ON.but(default="", about="The chip or slice, where the config does not say it (h100, h100:64).")
