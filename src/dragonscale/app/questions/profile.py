"""What `dscale profile` and `ds.profile` can be asked."""

from dragonscale.app.questions import shared
from dragonscale.app.questions.flag import PLAN, SHOW, Question, Several, Text, Thing, Whole


class ProfileQuestion(Question):
    """A profile to read, and the plan to lay beside it; a plan file says what is left out."""

    trace: Thing = Thing(value="TRACE", place=True, offers="files")
    """A profile: xplane.pb, trace.json(.gz) of JAX or PyTorch, an Nsight SQLite export, XLA's HLO text, or a folder
    of them."""
    plan: Thing = Thing("", "PLAN", PLAN, offers="files")
    """The plan it was recorded of (fsdp=8,remat=block; tp8), or a file that train or serve --save wrote."""
    model: Thing = shared.MODEL.but(default="", place=False, group=PLAN)
    on: Thing = shared.ON.but(default="")
    """The slice it ran on (v5p:4x4x4, h100:8), or the chip (h200); told by the profile without it."""
    batch: Text = Text("", "TOKENS|SEQS", PLAN)
    """With --plan: tokens of a step (4M) or sequences (512seq); serving: sequences."""
    seq: Text = Text("", "TOKENS", PLAN)
    """With --plan: tokens of a sequence, of a prompt, or that a cache holds."""
    program: Text = Text("", "WHAT", PLAN, offers=("train", "prefill", "decode"))
    """With --plan: what ran: train, prefill or decode; told by the plan without it."""
    stack: Text = shared.STACK.but(default="")
    """The stack that trained, whose plan is laid beside it."""
    engine: Text = shared.ENGINE.but()
    """The engine that served, whose plan is laid beside it."""
    profile: Text = shared.PROFILE.but()
    """With --plan: kernel times of your own device, as `dscale train` takes them."""
    step: Whole = Whole(None, "N", SHOW)
    """Look at this step alone, counted from 0; all that are whole without it."""
    top: Whole = Whole(15, "N", SHOW)
    """How many of the longest ops to list."""
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
