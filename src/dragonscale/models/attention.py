"""Softmax attention as lines of a program: MHA, GQA and MQA with their biases, norms, gates, sinks and windows.

Each record yields the lines between the block's normed input `X[b,t,d]` and the mixer's output `A[b,t,d]`, and the
sizes of the dims they use.

Which attention our own program hands to a flash kernel: one rule for the runtime, which asks it of arrays, and for
the planner.

cuDNN's kernel takes half precision, keys and values of one size up to 128, causal or within a sliding window. Soft
caps, sinks, chunks and larger heads are computed by XLA in blocks of scores.
"""

from dataclasses import dataclass
from typing import Literal

from dragonscale.errors import InputError
from dragonscale.models.component import Component, Written
from dragonscale.models.program import Op, Section
from dragonscale.physics.kernels.score_blocks import QUERY_BLOCK


@dataclass(frozen=True)
class Attention(Written):
    """Grouped-query attention: `n_heads` query heads share `n_kv_heads` key and value heads.

    `qk_norm` normalises queries and keys: `head` with one weight of the head's size for all heads, `all` with a weight
    of its own for every head, `plain` without any. `gate` multiplies the output by a sigmoid of a projection as large
    as the queries (`full`, with a bias where they have one) or of one number per head (`head`). `sinks` adds one learnt
    logit per head, `soft_cap` bends scores by a tanh. `window` keeps only the last so many keys; `chunk` cuts the
    sequence into independent chunks. `kv` says where keys and values come from: their own projections, one projection
    for both (`tied`), or an earlier layer's cache (`borrowed`). `v_norm` normalises the values without a weight;
    `out_norm` normalises all heads' results together before they are projected. `q_rank` is the width through which
    queries are projected, with a norm between (Step 3).

    >>> Attention(8, 2, 128).lines()[1]
    'attention: K[b,t,k,h] = X[b,t,d] · Wk[d,k,h]'
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int | None = None
    chunk: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["", "head", "all", "plain"] = ""
    qk_norm_bias: bool = False
    gate: Literal["", "full", "head"] = ""
    sinks: bool = False
    soft_cap: bool = False
    kv: Literal["own", "tied", "borrowed"] = "own"
    v_norm: bool = False
    out_norm: bool = False
    q_rank: int | None = None

    def __post_init__(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise InputError(f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads: not a multiple.")


@dataclass(frozen=True)
class ExpertAttention(Written):
    """Mixture of attention heads (JetMoE): each token picks `experts_per_token` of `n_experts` sets of query and output
    projections, which share the keys and values of `n_kv_heads` heads."""

    n_experts: int
    experts_per_token: int
    n_kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class CrossAttention(Written):
    """Attention to an image (mllama): queries from the text, keys and values from what the tower saw; two
    numbers gate its result and that of the MLP behind it."""

    n_heads: int
    n_kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class Indexer(Written):
    """A few small heads that score all keys, so that the attention behind them reads only the best `top`."""

    n_heads: int
    head_dim: int
    top: int


@dataclass(frozen=True)
class IndexedAttention(Component):
    """Grouped-query attention behind an indexer (MiniMax M3)."""

    attention: Attention
    indexer: Indexer

    @property
    def index_top(self) -> int:
        """How many keys a query reads."""
        return self.indexer.top

    @property
    def dims(self) -> dict[str, int]:
        return self.attention.dims | self.indexer.dims

    def ops(self) -> tuple[Op, ...]:
        return (*self.indexer.ops(), *self.attention.ops())


LARGEST_HEAD, WIDE_HEAD = 128, 256
ATTENTION_BLOCK = QUERY_BLOCK


def takes_flash(key: int, value: int, soft_cap: bool, sinks: bool, chunk: bool, wide: bool = False) -> bool:
    """Whether a flash kernel takes heads of such keys and values. From Hopper on (`wide`) cuDNN's take heads of 256,
    and values smaller than keys.

    >>> takes_flash(128, 128, False, False, False), takes_flash(256, 256, False, False, False)
    (True, False)
    >>> takes_flash(256, 256, False, False, False, wide=True), takes_flash(192, 128, False, False, False, wide=True)
    (True, True)
    """
    sizes = value <= key <= WIDE_HEAD and key % 8 == 0 if wide else key == value and key <= LARGEST_HEAD
    return sizes and not (soft_cap or sinks or chunk)


WIDE_HEADS = ("hopper", "blackwell")
"""Architectures on which flash kernels take wide heads (cuDNN 9.10)."""


def line_takes_flash(section: Section, op: Op, architecture: str) -> bool:
    """The same of a line of a program, whole sequences against themselves."""
    assert op.output is not None
    key, value = (section.dims.get(array.names[-1], 0) for array in (op.inputs[0], op.output))
    plain = op.function == "attend" and section.top is None and section.compress is None
    odd = section.soft_cap, bool(op.weights), section.chunk is not None
    return plain and takes_flash(key, value, *odd, architecture in WIDE_HEADS)
