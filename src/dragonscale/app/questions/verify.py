"""What `dscale verify` and `ds.verify` can be asked."""

from dragonscale.app.questions import shared
from dragonscale.app.questions.flag import COMPILER, PLAN, Question, Several, Switch, Text, Thing

_PLAN = Thing(value="PLAN", group=PLAN, place=True, offers="files")
"""A plan (fsdp=8,remat=block; tp8 dp2), or a file that train or serve --save wrote."""


class VerifyQuestion(Question):
    """A plan to compile; what is left out is taken from the plan file, or from what the rest implies."""

    plan: Thing = _PLAN
    model: Thing = shared.MODEL.but(default="", place=False)
    on: Thing = shared.ON.but(default="")
    """The slice to compile for (v5p:8x16x16, h100:512)."""
    batch: Text = Text("", "TOKENS|SEQS")
    """Training: tokens of a step (4M), or sequences (512seq). Serving: sequences."""
    seq: Text = Text("", "TOKENS")
    """Tokens of a sequence, of a prompt, or that a cache has room for."""
    program: Text = Text("", "WHAT", PLAN, offers=("train", "prefill", "decode"))
    """What to compile: train, prefill or decode; told by the plan without it."""
    mode: Text = Text("canonical", "MODE", COMPILER, offers=("canonical", "full"))
    """canonical: plain collectives, quickly; full: overlap and schedule too."""
    timeout: Text = Text("900s", "TIME", COMPILER)
    """The longest the compiler may take."""
    memory: Text = Text("8GB", "BYTES", COMPILER)
    """The most of this machine's memory that it may take."""
    options: Several = Several("", "NAME=VALUE", COMPILER, dash="--option")
    """An option of XLA; may be repeated."""
    stack: Text = shared.STACK.but(default="")
    """The stack the plan was made for: what it does otherwise than our own program is listed."""
    cache: Switch = Switch(default=True, group=COMPILER)
    """Use what was compiled before, if nothing has changed since."""
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
