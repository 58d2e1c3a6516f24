"""What `dscale profile` and `ds.profile` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ASSUME,
    ENGINE,
    FAMILY,
    MODEL,
    ON,
    PLAN,
    PROFILE,
    SHOW,
    STACK,
    Several,
    Text,
    Thing,
    Whole,
)


@dataclass(frozen=True)
class ProfileQuestion:
    """A profile to read, and the plan to lay beside it; a plan file says what is left out."""

    trace: Thing = Thing(
        (
            "A profile: xplane.pb, trace.json(.gz) of JAX or PyTorch, an Nsight SQLite export, XLA's HLO text, or a "
            "folder of them."
        ),
        value="TRACE",
        place=True,
        offers="files",
    )
    plan: Thing = Thing(
        "The plan it was recorded of (fsdp=8,remat=block; tp8), or a file that train or serve --save wrote.",
        default="",
        value="PLAN",
        group=PLAN,
        offers="files",
    )
    model: Thing = MODEL.but(default="", place=False, group=PLAN)
    on: Thing = ON.but(
        about="The slice it ran on (v5p:4x4x4, h100:8), or the chip (h200); told by the profile without it.", default=""
    )
    batch: Text = Text(
        "With --plan: tokens of a step (4M) or sequences (512seq); serving: sequences.",
        default="",
        value="TOKENS|SEQS",
        group=PLAN,
    )
    seq: Text = Text(
        "With --plan: tokens of a sequence, of a prompt, or that a cache holds.", default="", value="TOKENS", group=PLAN
    )
    program: Text = Text(
        "With --plan: what ran: train, prefill or decode; told by the plan without it.",
        default="",
        value="WHAT",
        group=PLAN,
        offers=("train", "prefill", "decode"),
    )
    stack: Text = STACK.but(about="The stack that trained, whose plan is laid beside it.", default="")
    engine: Text = ENGINE.but(about="The engine that served, whose plan is laid beside it.")
    profile: Text = PROFILE.but(about="With --plan: kernel times of your own device, as `dscale train` takes them.")
    step: Whole = Whole(
        "Look at this step alone, counted from 0; all that are whole without it.", default=None, value="N", group=SHOW
    )
    top: Whole = Whole("How many of the longest ops to list.", default=15, value="N", group=SHOW)
    assume: Several = ASSUME
    family: Text = FAMILY
