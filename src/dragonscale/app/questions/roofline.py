"""What `dscale roofline` and `ds.roofline` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import ON, SET, WHERE, Real, Several, Switch, Text, Thing

EXPRESSION = Text(
    "An einsum 'bf16[B,8192] @ bf16[8192,28672]', attention 'attention(B=8, T=4096, N=64, K=8, H=128, causal)', "
    "an elementwise function 'softmax(bf16[B,F])' or sum 'bf16[B,D] + bf16[B,D]', or amounts '2e12FLOP 3GB'.",
    value="EXPR",
    place=True,
)
SIZES = Thing("Sizes of named dims, such as B=1024,D=8192.", default="", value="SIZES")
CHIP = ON.but(about="A chip (v5e, h100, mychip.toml), or a slice of it.", default="", value="CHIP")
MEMORY = Text(
    "Where the operands live: hbm, vmem, l2, pcie, dcn …",
    default="hbm",
    value="NAME",
    group=WHERE,
    offers=("hbm", "vmem", "smem", "l2", "pcie", "dcn"),
)


@dataclass(frozen=True)
class RooflineQuestion:
    """One operation on one chip; sizes that are left open are letters."""

    expression: Text = EXPRESSION
    on: Thing = CHIP
    sizes: Thing = SIZES
    memory: Text = MEMORY
    set: Several = SET
    weights_only: Switch = Switch("Count only the last operand's bytes, as rules of thumb do.")
    per_element: Real = Real(
        "FLOPs of an elementwise function for each element; the usual ones without it.", default=None, value="FLOPS"
    )
