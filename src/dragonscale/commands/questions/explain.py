"""What `dscale explain …` and `ds.explain` can be asked: a question for each kind of answer that has formulas."""

from dragonscale.commands.questions import operations, shared
from dragonscale.commands.questions.flag import (
    PLAN,
    REQUIRED,
    SOFTWARE,
    Question,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)


class ExplainRooflineQuestion(operations.RooflineQuestion):
    """Why an operation takes as long as it does."""

    on: Thing = operations.CHIP.but(default=shared.ON.default)
    sizes: Thing = operations.SIZES


class ExplainCollectiveQuestion(Question):
    """Why a collective takes as long as it does."""

    kind: Text = operations.KIND
    on: Thing = operations.SLICE_OR_MESH
    size: Text = operations.BYTES.but(default="")
    """Bytes of the whole array, such as 34MB; a letter V without it."""
    axis: Text = operations.AXIS
    mesh: Thing = operations.MESH
    set: Several = shared.SET
    one_way: Switch = operations.ONE_WAY
    in_network: Switch = operations.IN_NETWORK
    filled: Real = operations.FILLED
    picks: Whole = operations.PICKS


class ExplainShardQuestion(operations.ShardedEinsum):
    """Which bytes a sharded einsum moves."""


class ExplainModelQuestion(Question):
    """Where a model's parameters and FLOPs come from."""

    model: Thing = shared.MODEL
    seq: Text = shared.SEQ.but(default="8192")


class ExplainTrainQuestion(Question):
    """Where a step's time, bytes, FLOPs and memory come from, and where it becomes bound by the network."""

    plan: Thing = shared.PLAN.but(default=REQUIRED, place=True)
    """A plan (tp8 pp4; fsdp=64,tensor=8,remat=block; a .toml), or a scheme (fsdp, dp+tp, fsdp+ep+tp)."""
    model: Thing = shared.MODEL.but(place=False)
    on: Thing = shared.ON
    batch: Text = shared.BATCH.but(default="")
    """Tokens of a step (4M), or sequences (512seq); what `dscale train` takes without it."""
    seq: Text = shared.SEQ.but(default="")
    """Tokens of a sequence (8192, 32k); what `dscale train` takes without it."""
    method: Text = shared.METHOD
    lora_rank: Whole = shared.LORA_RANK
    lora_targets: Text = shared.LORA_TARGETS
    frozen: Text = shared.FROZEN
    teacher: Thing = shared.TEACHER
    attention: Text = shared.ATTENTION
    set: Several = shared.SET
    profile: Text = shared.PROFILE
    stack: Text = shared.STACK
    numerics: Text = shared.NUMERICS
    dtype: Text = shared.DTYPE
    wire: Text = Text("", "DTYPE", SOFTWARE, offers="dtypes")
    """Format of activations between chips; the stack's without it (bf16)."""
    line: Text = shared.LINE.but()
    """One line, term, tensor or part of memory: U+G, 'mlp matmuls', tensor, all_gather, optimizer …"""
    solve: Text = shared.SOLVE.but(value="NAMES")
    """Solve crossovers for batch, seq, chips or a mesh axis; several with commas."""


class ExplainServeQuestion(Question):
    """Where an iteration's time and memory, the time per token and the limits of serving come from."""

    model: Thing = shared.MODEL
    on: Thing = shared.ON.but(default="")
    """A chip (h100) or a slice (v5e:4x4); a saved plan has its own."""
    prompt: Text = shared.PROMPT
    output: Text = shared.OUTPUT
    ttft: Text = shared.TTFT
    tpot: Text = shared.TPOT
    set: Several = shared.SET
    profile: Text = shared.PROFILE
    engine: Text = shared.ENGINE
    dtype: Text = shared.DTYPE.but(default="")
    """Format of weights, matmuls and KV cache."""
    weights: Text = shared.WEIGHTS
    compute: Text = shared.COMPUTE
    kv_dtype: Text = shared.KV_DTYPE
    plan: Thing = shared.PLAN.but()
    """The plan (tp8, or a .toml); the best one without it."""
    batch: Text = shared.BATCH.but(default="", value="SEQS", group=PLAN)
    """Sequences that decode at once; the best number without it."""
    line: Text = shared.LINE.but()
    """One line, term or tensor of the iteration: U+G, mlp, tensor, all_reduce, 'KV cache', Wq …"""
    solve: Text = shared.SOLVE.but()
    """Solve crossovers for batch, context, prompt or a mesh axis (tensor)."""
