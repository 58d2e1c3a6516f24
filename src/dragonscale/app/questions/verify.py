"""What `dscale verify` and `ds.verify` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ASSUME,
    COMPILER,
    FAMILY,
    MODEL,
    ON,
    PLAN,
    STACK,
    Several,
    Switch,
    Text,
    Thing,
)

_PLAN = Thing(
    "A plan (fsdp=8,remat=block; tp8 dp2), or a file that train or serve --save wrote.",
    value="PLAN",
    group=PLAN,
    place=True,
    offers="files",
)


@dataclass(frozen=True)
class VerifyQuestion:
    """A plan to compile; what is left out is taken from the plan file, or from what the rest implies."""

    plan: Thing = _PLAN
    model: Thing = MODEL.but(default="", place=False)
    on: Thing = ON.but(about="The slice to compile for (v5p:8x16x16, h100:512).", default="")
    batch: Text = Text(
        "Training: tokens of a step (4M), or sequences (512seq). Serving: sequences.", default="", value="TOKENS|SEQS"
    )
    seq: Text = Text("Tokens of a sequence, of a prompt, or that a cache has room for.", default="", value="TOKENS")
    program: Text = Text(
        "What to compile: train, prefill or decode; told by the plan without it.",
        default="",
        value="WHAT",
        group=PLAN,
        offers=("train", "prefill", "decode"),
    )
    mode: Text = Text(
        "canonical: plain collectives, quickly; full: overlap and schedule too.",
        default="canonical",
        value="MODE",
        group=COMPILER,
        offers=("canonical", "full"),
    )
    timeout: Text = Text("The longest the compiler may take.", default="900s", value="TIME", group=COMPILER)
    memory: Text = Text(
        "The most of this machine's memory that it may take.", default="8GB", value="BYTES", group=COMPILER
    )
    options: Several = Several(
        "An option of XLA; may be repeated.", default="", value="NAME=VALUE", group=COMPILER, dash="--option"
    )
    stack: Text = STACK.but(
        about="The stack the plan was made for: what it does otherwise than our own program is listed.",
        default="",
    )
    cache: Switch = Switch("Use what was compiled before, if nothing has changed since.", default=True, group=COMPILER)
    assume: Several = ASSUME
    family: Text = FAMILY
