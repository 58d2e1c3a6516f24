"""What `dscale train` and `ds.train` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ASSUME,
    DTYPE,
    FAMILY,
    FORCE,
    MODEL,
    ON,
    PLAN,
    PRICE,
    PROFILE,
    SEQ,
    SET,
    SHOW,
    STACK,
    TRAIN_BATCH,
    WHERE,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)

_PLACES = (
    "A slice (v5p:8x16x16, h100:4096), or several (h100:64,v5p:4x4x8, or --on again). A chip alone (h100) asks "
    "for the fewest of them; 'any' for the cheapest slice of the catalogue."
)


@dataclass(frozen=True)
class TrainQuestion:
    """A training run: the model, the chips, the batch; and what the answer should hold to. A plan file says what is
    left out."""

    model: Thing = MODEL.but(default="", needed=True)
    on: Thing = ON.but(about=_PLACES, default="", needed=True)
    batch: Text = TRAIN_BATCH.but(default="", needed=True)
    seq: Text = SEQ.but(default="", needed=True)
    tokens: Text = Text(
        "Tokens of the whole run (15T), or 'chinchilla' for 20 a parameter.", default="", value="TOKENS"
    )
    documents: Text = Text(
        "Mean tokens of the documents that a sequence is packed with, none of which sees another.",
        default="",
        value="TOKENS",
    )
    skew: Real = Real("Tokens of the busiest expert over the mean: 1 is balanced routing.", default=1.0)
    capacity: Real = Real(
        "Room of an expert over its even share of tokens, beyond which they are dropped (0: none are).", default=0.0
    )
    set: Several = SET
    profile: Text = PROFILE
    price: Text = PRICE
    deadline: Text = Text(
        "With a chip alone or 'any': the time a run (with --tokens) or a step may take.",
        default="",
        value="TIME",
        group=WHERE,
    )
    plan: Thing = Thing(
        (
            "Judge this plan (tp8 pp4 dp16; fsdp=64,tensor=4,remat=block; a .toml; a Megatron, torchtitan or MaxText "
            "config) against the best."
        ),
        default="",
        value="PLAN",
        group=PLAN,
        offers="files",
    )
    alone: Switch = Switch("Judge --plan alone, without looking for a better one.", group=PLAN)
    measured: Text = Text(
        "With --plan: the step that was measured (8.2s). Where did the rest go?",
        default="",
        value="TIME",
        group=PLAN,
    )
    fix: Text = Text(
        "Settings the plans must have, such as tp8,zero=1|3,schedule=1f1b.", default="", value="PLAN", group=PLAN
    )
    remat: Text = Text(
        "Recompute policies to choose from: none,selective,matmuls,block,offload …",
        default="",
        value="NAMES",
        group=PLAN,
        also=("--recompute",),
    )
    slack: Text = Text(
        "How much slower than the fastest a simpler plan may be (0: the fastest that leaves room in memory).",
        default="1%",
        value="PART",
        group=PLAN,
    )
    stack: Text = STACK
    dtype: Text = DTYPE.but(about="Format of matmuls: bf16 without it, fp8 …", default="")
    force: Switch = FORCE
    assume: Several = ASSUME
    family: Text = FAMILY
    rank: Text = Text(
        "time, or cost: the fewest dollars, on this slice or a part of it.",
        default="time",
        value="BY",
        group=SHOW,
        offers=("time", "cost"),
    )
    top: Whole = Whole("How many of the best plans to show.", default=5, value="N", group=SHOW)
    largest: Text = Text(
        "Ask for the largest 'batch' or 'model' that fits the slice instead.",
        default="",
        value="WHAT",
        group=SHOW,
        offers=("batch", "model"),
    )
    scaling: Switch = Switch("Add the best plans on smaller and larger slices.", group=SHOW)
    codesign: Switch = Switch("Add what better hardware would change.", group=SHOW)
