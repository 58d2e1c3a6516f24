"""What `dscale explain …` and `ds.explain` can be asked: a question for each kind of answer that has formulas."""

from dataclasses import dataclass

from dragonscale.app.questions.collective import AXIS, BYTES, FILLED, IN_NETWORK, KIND, ONE_WAY, PICKS
from dragonscale.app.questions.collective import PLACE as ON_SLICE
from dragonscale.app.questions.flag import (
    DTYPE,
    ENGINE,
    MODEL,
    ON,
    PLAN,
    PROFILE,
    SEQ,
    SET,
    SHOW,
    SOFTWARE,
    STACK,
    TRAIN_BATCH,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)
from dragonscale.app.questions.roofline import CHIP, EXPRESSION, MEMORY, SIZES
from dragonscale.app.questions.serving import COMPUTE, KV_DTYPE, OUTPUT, PROMPT, TPOT, TTFT, WEIGHTS
from dragonscale.app.questions.shard import MESH, ShardQuestion
from dragonscale.app.questions.shard import PLACE as ON_ANY


@dataclass(frozen=True)
class ExplainRooflineQuestion:
    """Why an operation takes as long as it does."""

    expression: Text = EXPRESSION
    on: Thing = CHIP.but(default=ON.default)
    sizes: Thing = SIZES
    memory: Text = MEMORY
    set: Several = SET


@dataclass(frozen=True)
class ExplainCollectiveQuestion:
    """Why a collective takes as long as it does."""

    kind: Text = KIND
    on: Thing = ON_SLICE
    size: Text = BYTES.but(about="Bytes of the whole array, such as 34MB; a letter V without it.", default="")
    axis: Text = AXIS
    mesh: Thing = MESH
    set: Several = SET
    one_way: Switch = ONE_WAY
    in_network: Switch = IN_NETWORK
    filled: Real = FILLED
    picks: Whole = PICKS


@dataclass(frozen=True)
class ExplainShardQuestion:
    """Which bytes a sharded einsum moves."""

    expression: Text = ShardQuestion.__dict__["expression"]
    mesh: Thing = MESH
    on: Thing = ON_ANY
    set: Several = SET
    sizes: Thing = SIZES


@dataclass(frozen=True)
class ExplainModelQuestion:
    """Where a model's parameters and FLOPs come from."""

    model: Thing = MODEL
    seq: Text = SEQ.but(default="8192")


@dataclass(frozen=True)
class ExplainTrainQuestion:
    """Where a step's time, bytes, FLOPs and memory come from, and where it becomes bound by the network."""

    plan: Thing = Thing(
        "A plan (tp8 pp4; fsdp=64,tensor=8,remat=block; a .toml), or a scheme (fsdp, dp+tp, fsdp+ep+tp).",
        value="PLAN",
        place=True,
        group=PLAN,
    )
    model: Thing = MODEL.but(place=False)
    on: Thing = ON
    batch: Text = TRAIN_BATCH.but(default="4Mi")
    seq: Text = SEQ.but(default="8192")
    set: Several = SET
    profile: Text = PROFILE
    stack: Text = STACK
    dtype: Text = DTYPE
    wire: Text = Text(
        "Format of activations between chips; the stack's without it (bf16).",
        default="",
        value="DTYPE",
        group=SOFTWARE,
        offers="dtypes",
    )
    line: Text = Text(
        "One line, term, tensor or part of memory: U+G, 'mlp matmuls', tensor, all_gather, optimizer …",
        default="",
        value="NAME",
        group=SHOW,
    )
    solve: Text = Text(
        "Solve crossovers for batch, seq, chips or a mesh axis; several with commas.",
        default="",
        value="NAMES",
        group=SHOW,
    )


@dataclass(frozen=True)
class ExplainServeQuestion:
    """Where an iteration's time and memory, the time per token and the limits of serving come from."""

    model: Thing = MODEL
    on: Thing = ON.but(about="A chip (h100) or a slice (v5e:4x4); a saved plan has its own.", default="")
    prompt: Text = PROMPT
    output: Text = OUTPUT
    ttft: Text = TTFT
    tpot: Text = TPOT
    set: Several = SET
    profile: Text = PROFILE
    engine: Text = ENGINE
    dtype: Text = DTYPE.but(about="Format of weights, matmuls and KV cache.", default="")
    weights: Text = WEIGHTS
    compute: Text = COMPUTE
    kv_dtype: Text = KV_DTYPE
    plan: Thing = Thing("The plan (tp8, or a .toml); the best one without it.", default="", value="PLAN", group=PLAN)
    batch: Text = Text(
        "Sequences that decode at once; the best number without it.", default="", value="SEQS", group=PLAN
    )
    line: Text = Text(
        "One line, term or tensor of the iteration: U+G, mlp, tensor, all_reduce, 'KV cache', Wq …",
        default="",
        value="NAME",
        group=SHOW,
    )
    solve: Text = Text(
        "Solve crossovers for batch, context, prompt or a mesh axis (tensor).", default="", value="NAME", group=SHOW
    )
