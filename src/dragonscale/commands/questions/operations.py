"""What `dscale roofline`, `shard`, `collective`, `hlo` and `estimate` and their functions can be asked."""

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.flag import SHOW, WHERE, WORK, Question, Real, Several, Switch, Text, Thing, Whole

SIZES = Thing("", "SIZES")
"""Sizes of named dims, such as B=1024,D=8192."""
CHIP = shared.ON.but(default="", value="CHIP")
"""A chip (v5e, h100, mychip.toml), or a slice of it."""


class RooflineQuestion(Question):
    """One operation on one chip; sizes that are left open are letters."""

    expression: Text = Text(value="EXPR", place=True)
    """An einsum 'bf16[B,8192] @ bf16[8192,28672]', attention 'attention(B=8, T=4096, N=64, K=8, H=128, causal)', an
    elementwise function 'softmax(bf16[B,F])' or sum 'bf16[B,D] + bf16[B,D]', or amounts '2e12FLOP 3GB'."""
    on: Thing = CHIP
    sizes: Thing = SIZES.but()
    """Sizes of named dims, such as B=1024,D=8192; several go row by row: B=[1,8,64]."""
    memory: Text = Text("hbm", "NAME", WHERE, offers=("hbm", "vmem", "smem", "l2", "pcie", "dcn"))
    """Where the operands live: hbm, vmem, l2, pcie, dcn …"""
    set: Several = shared.SET
    weights_only: Switch = Switch()
    """Count only the last operand's bytes, as rules of thumb do."""
    per_element: Real = Real(None, "FLOPS")
    """FLOPs of an elementwise function for each element; the usual ones without it."""


MESH = Thing("", "AXES", WHERE)
"""Mesh axes, slowest first, such as X=4,Y=8; a slice's own axes without it."""


class ShardedEinsum(Question):
    """An einsum over sharded arrays: what is asked of it, or the formulas behind that."""

    expression: Text = Text(value="EXPR", place=True)
    """Such as 'A[I_X, J] @ B[J_X, K] -> C[I, K]', a chain 'In[B_X, D] · W1[D, F] · W2[F, D] -> Out[B_X, D]', a reshard
    'A[I_X, J] -> A[I, J_X]', or a layout 'A[I_XY, J]': what each chip holds."""
    mesh: Thing = MESH
    on: Thing = shared.ON.but(default="")
    """A chip (v5e) or a slice (v5p:8x16x16, h100:64) for times."""
    set: Several = shared.SET
    sizes: Thing = SIZES


class ShardQuestion(ShardedEinsum):
    """A sharded einsum, a chain of them, or a reshard."""

    alternatives: Whole = Whole(None, "N", SHOW)
    """How many ways to show for each einsum; without it three, of a chain the cheapest."""
    backward: Switch = Switch(default=True, group=SHOW)
    """Show the backward pass too."""


KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "send", "gather")
KIND = Text(value="KIND", place=True, offers=KINDS)
"""all_gather, reduce_scatter, all_reduce, all_to_all, permute; send (--from-chip, --to-chip), gather (--to-chip)."""
BYTES = Text(value="BYTES", place=True)
"""Bytes of the array as one group of chips has it together, such as 34MB, or an array, bf16[4096, 65536]. If axes
outside the group split it as well, name them: bf16[8192_X, 32768_Y] with --axis X."""
SLICE_OR_MESH = shared.ON.but()
"""A slice (v5e:8x16, h100:64), or with --mesh a chip."""
AXIS = Text("", "AXES")
"""Mesh axes: X, XY or data,fsdp; all of them without it."""
ONE_WAY = Switch()
"""Send around rings in one direction only."""
IN_NETWORK = Switch()
"""Let switches add (SHARP, NVLS)."""
FILLED = Real(1.0, "PART")
"""Part of an AllToAll's pieces that are not empty."""
PICKS = Whole(None, "N")
"""Experts that a token picks: fills that part of an AllToAll."""


class CollectiveQuestion(Question):
    """One collective over mesh axes of a slice, or one message between its chips."""

    kind: Text = KIND
    size: Text = BYTES
    on: Thing = SLICE_OR_MESH
    axis: Text = AXIS
    mesh: Thing = MESH
    set: Several = shared.SET
    one_way: Switch = ONE_WAY
    in_network: Switch = IN_NETWORK
    filled: Real = FILLED
    picks: Whole = PICKS
    from_chip: Text = Text("", "PLACE")
    """The chip that sends, such as 0,0."""
    to_chip: Text = Text("", "PLACE")
    """The chip that receives, such as 3,3."""


class HloQuestion(Question):
    """A shape, an instruction or a program in XLA's HLO, or how to read it."""

    text: Text = Text(value="TEXT|FILE", place=True, offers="files")
    """A file of HLO text (--xla_dump_to, compiled.as_text()) or a folder of dumps; one instruction '%f =
    bf16[8,4]{1,0} fusion(…), …'; a shape 'bf16[4,8]{1,0:T(2,4)(2,1)}'; a note: pipeline, grammar, memories, tiles,
    fusions, scatter; or `example`, a program to try."""
    on: Thing = shared.ON.but(default="", value="CHIP")
    """A chip (v5e, h100, mychip.toml): the time that each op takes at best there."""
    set: Several = shared.SET
    module: Text = Text("", "NAME")
    """Which module of a file or folder with several, by its name."""
    top: Whole = shared.TOP.but(default=12)
    """How many ops to list."""


class EstimateQuestion(Question):
    """A model, or a number of parameters; a run, a batch of decoding, a chip: whatever is known."""

    model: Thing = shared.MODEL.but(default="")
    on: Thing = shared.ON.but(default="")
    """A chip (h100), or a slice of several (h100:1024, v5p:8x16x16); without it, what needs no chip."""
    params: Text = Text("", "COUNT")
    """Parameters, instead of a model (70e9, 70B): what needs no architecture is worked out."""
    active: Text = Text("", "COUNT")
    """With --params: those that a token uses, of an MoE."""
    tokens: Text = shared.TOKENS.but()
    """Tokens of a training run (15T); 'chinchilla', as without it, for 20 a parameter."""
    seq: Text = shared.SEQ.but(default="8192")
    """Tokens of a training sequence, for the attention FLOPs."""
    mfu: Text = Text("40%", "PART")
    """The part of the peak that training and prefill reach: 40%, 0.4."""
    batch: Text = shared.BATCH.but(default="", value="SEQS")
    """Sequences that are decoded together."""
    context: Text = Text("", "TOKENS")
    """Tokens in the KV cache of a sequence (8192 without it)."""
    prompt: Text = shared.PROMPT.but(default="")
    """Tokens of a prompt (2048 without it)."""
    lora_rank: Whole = shared.LORA_RANK.but(group=WORK)
    """Add the memory of fine-tuning with adapters of this rank."""
    price: Text = shared.PRICE
    dtype: Text = shared.DTYPE
    weights: Text = shared.WEIGHTS.but()
    """Format of the weights that are served: bf16, fp8, int8, int4 …; the checkpoint's own without it."""
    kv_dtype: Text = shared.KV_DTYPE.but(default="bf16")
