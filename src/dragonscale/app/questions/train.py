"""What `dscale train` and `ds.train` can be asked."""

from dragonscale.app.questions import shared
from dragonscale.app.questions.flag import PLAN, SHOW, WHERE, Question, Real, Several, Switch, Text, Thing, Whole


class TrainQuestion(Question):
    """A training run: the model, the chips, the batch; and what the answer should hold to. A plan file says what is
    left out."""

    model: Thing = shared.MODEL.but(default="", needed=True)
    on: Thing = shared.ON.but(default="", needed=True)
    """A slice (v5p:8x16x16, h100:4096), or several (h100:64,v5p:4x4x8, or --on again). A chip alone (h100) asks for
    the fewest of them; 'any' for the cheapest slice of the catalogue."""
    batch: Text = shared.BATCH.but(default="", needed=True)
    seq: Text = shared.SEQ.but(default="", needed=True)
    tokens: Text = Text("", "TOKENS")
    """Tokens of the whole run (15T), or 'chinchilla' for 20 a parameter."""
    documents: Text = Text("", "TOKENS")
    """Mean tokens of the documents that a sequence is packed with, none of which sees another."""
    skew: Real = Real(1.0)
    """Tokens of the busiest expert over the mean: 1 is balanced routing."""
    capacity: Real = Real(0.0)
    """Room of an expert over its even share of tokens, beyond which they are dropped (0: none are)."""
    set: Several = shared.SET
    profile: Text = shared.PROFILE
    price: Text = shared.PRICE
    deadline: Text = Text("", "TIME", WHERE)
    """With a chip alone or 'any': the time a run (with --tokens) or a step may take."""
    plan: Thing = Thing("", "PLAN", PLAN, offers="files")
    """Judge this plan (tp8 pp4 dp16; fsdp=64,tensor=4,remat=block; a .toml; a Megatron, torchtitan or MaxText
    config) against the best."""
    alone: Switch = Switch(group=PLAN)
    """Judge --plan alone, without looking for a better one."""
    measured: Text = Text("", "TIME", PLAN)
    """With --plan: the step that was measured (8.2s). Where did the rest go?"""
    fix: Text = Text("", "PLAN", PLAN)
    """Settings the plans must have, such as tp8,zero=1|3,schedule=1f1b."""
    remat: Text = Text("", "NAMES", PLAN, also=("--recompute",))
    """Recompute policies to choose from: none,selective,matmuls,block,offload …"""
    slack: Text = Text("1%", "PART", PLAN)
    """How much slower than the fastest a simpler plan may be (0: the fastest that leaves room in memory)."""
    stack: Text = shared.STACK
    dtype: Text = shared.DTYPE.but(default="")
    """Format of matmuls: bf16 without it, fp8 …"""
    force: Switch = shared.FORCE
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
    rank: Text = Text("time", "BY", SHOW, offers=("time", "cost"))
    """time, or cost: the fewest dollars, on this slice or a part of it."""
    top: Whole = Whole(5, "N", SHOW)
    """How many of the best plans to show."""
    largest: Text = Text("", "WHAT", SHOW, offers=("batch", "model"))
    """Ask for the largest 'batch' or 'model' that fits the slice instead."""
    scaling: Switch = Switch(group=SHOW)
    """Add the best plans on smaller and larger slices."""
    codesign: Switch = Switch(group=SHOW)
    """Add what better hardware would change."""
