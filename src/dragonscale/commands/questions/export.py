"""What `dscale export`, `dscale import` and their functions can be asked."""

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.flag import FILES, PLAN, REQUIRED, Length, Question, Several, Switch, Text, Thing

_PLAN = shared.PLAN.but(default=REQUIRED, place=True)
"""A file that train or serve --save wrote, a plan (tp8 pp4 dp16), or the config or command of another software."""


class ExportQuestion(Question):
    """A plan to write down for the software that runs it; what is left out is taken from the plan file."""

    plan: Thing = _PLAN
    to: Several = shared.TO.but(default=REQUIRED, offers="targets")
    """The software (megatron, torchtitan, maxtext, deepspeed, accelerate; trl, axolotl, llamafactory, torchtune, swift
    for fine-tuning; vllm, sglang, trtllm …), what launches it (shell, slurm, kubernetes, skypilot), or both:
    megatron,slurm. Or a load test: vllm-bench, sglang-bench, genai-perf."""
    out: Text = shared.OUT.but(value="FOLDER")
    """Write the files into this folder; printed without it."""
    model: Thing = shared.MODEL.but(default="", place=False)
    on: Thing = shared.ON.but(default="")
    batch: Text = shared.BATCH.but(default="")
    """Training: tokens of a step (4M), or sequences (512seq). Serving: sequences of a replica."""
    seq: Text = shared.SEQ.but(default="")
    """Training: tokens of a sequence."""
    tokens: Text = shared.TOKENS.but()
    """Training: tokens of the whole run (15T)."""
    prompt: Length = Length.of(shared.PROMPT, default="")
    """Serving: tokens of a prompt."""
    output: Length = Length.of(shared.OUTPUT, default="")
    """Serving: tokens of an answer."""
    rate: Text = shared.RATE.but()
    """Serving: requests that come (20/s)."""
    stack: Text = shared.STACK.but(default="")
    """The stack of a plan that names none; told by the target without it."""
    numerics: Text = shared.NUMERICS
    engine: Text = shared.ENGINE.but()
    """The engine of a plan that names none; told by the target without it."""
    price: Text = shared.PRICE
    overwrite: Switch = Switch(group=FILES)
    """Write over files that are there already."""
    force: Switch = shared.FORCE.but()
    """Write a plan that does not fit or that the software refuses, and say so."""


class ImportQuestion(Question):
    """The config or command of another software, to be read as a plan."""

    config: Thing = Thing(value="CONFIG", group=PLAN, place=True, offers="files")
    """A config, a script, a folder of an export, or a command as text (vllm serve …, torchrun … pretrain_gpt.py …,
    trl sft …)."""
    model: Thing = shared.MODEL.but(default="", place=False)
    """The model, where the config does not say it."""
    on: Thing = shared.ON.but(default="")
    """The chip or slice, where the config does not say it (h100, h100:64)."""
