"""What `dscale run train` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ASSUME,
    DTYPE,
    FAMILY,
    FILES,
    MODEL,
    ON,
    PLAN,
    PROFILE,
    SEQ,
    SHOW,
    WHERE,
    Real,
    Several,
    Text,
    Thing,
    Whole,
)


@dataclass(frozen=True)
class RunTrainQuestion:
    """A run of a plan: a plan file with a `[run]` table says what is left out, and flags come before it."""

    plan: Thing = Thing(
        "A plan file (plan.toml, see --save of train), or fsdp=8,remat=block.",
        value="PLAN",
        group=PLAN,
        place=True,
        offers="files",
    )
    model: Thing = MODEL.but(default="", place=False)
    data: Several = Several(
        "Token files (.bin of uint16 or uint32, .npy), several with commas; * works.",
        default="",
        value="FILES",
        offers="files",
    )
    steps: Whole = Whole("How many steps, from the very first.", default=None, value="N")
    batch: Text = Text("Sequences of a step, over all devices.", default="", value="SEQS")
    seq: Text = SEQ.but(default="")
    learning_rate: Real = Real("Learning rate at its peak.", default=None, value="RATE")
    warmup: Whole = Whole("Steps until the learning rate is at its peak.", default=None, value="N")
    seed: Whole = Whole("Seed of the weights and of the order of the data.", default=None, value="N")
    capacity: Real = Real(
        (
            "Expert capacity factor; tokens beyond it are dropped (0: dropless). GPUs: 1, as plans count on; else "
            "dropless."
        ),
        default=None,
        value="FACTOR",
    )
    on: Thing = ON.but(about="The slice whose planned step time to show beside the run.", default="")
    kernels: Text = PROFILE.but(
        about=(
            "Kernel times of the planned step (--profile of the planner): a file of `dscale calibrate`, own or "
            "built-in."
        )
    )
    cpu: Whole = Whole("Run on so many virtual devices of this machine's CPU.", default=0, value="N", group=WHERE)
    dtype: Text = DTYPE.but(about="What matrices are multiplied in: bf16 or fp32.", default="", offers=("bf16", "fp32"))
    assume: Several = ASSUME
    family: Text = FAMILY
    log: Whole = Whole("Steps between lines on stderr; 0: none.", default=10, value="N", group=SHOW)
    profile: Whole = Whole(
        "Record so many steps after those that warm up, and tell where their time went (see `dscale profile`).",
        default=None,
        value="N",
        group=SHOW,
    )
    profile_to: Text = Text(
        "The folder of the profile; profile beside the checkpoints, or here.",
        default="",
        value="FOLDER",
        group=FILES,
        offers="files",
    )
    weights: Text = Text(
        "A folder of Hugging Face .safetensors files to begin from; random weights without one.",
        default="",
        value="FOLDER",
        group=FILES,
        offers="files",
    )
    checkpoints: Text = Text(
        "The folder of checkpoints; a run goes on from the newest.",
        default="",
        value="FOLDER",
        group=FILES,
        offers="files",
    )
    every: Whole = Whole("Steps between checkpoints; 0: only at the end.", default=None, value="N", group=FILES)
    keep: Whole = Whole("How many checkpoints stay.", default=None, value="N", group=FILES)
    metrics: Text = Text(
        "A file for a line of JSON a step (metrics.jsonl beside checkpoints).",
        default="",
        value="FILE",
        group=FILES,
        offers="files",
    )
