"""Multi-head latent attention, with and without an indexer, as lines of a program.

Latent attention as it is decoded: keys and values never expanded.

Prefill and training expand every token's latent into keys and values for all heads. One query per sequence is better
served the other way round: the query is taken through the key expansion, attends to the latents themselves, which all
heads share, and the result is taken through the value expansion. The matmuls are the same, in another order; the cache
is read once instead of once per head.

>>> from dragonscale.models import load_model
>>> block = next(section for section in load_model("deepseek-v3").program().sections if section.name == "block1")
>>> [str(op) for op in absorbed(block).ops if op.function == "attend"]
['attention: Ol[b, t, n, c] = attend(Ql[b, t, n, l], C[b, s, c], Kr[b, s, r])']

DeepSeek-V4's attention as lines of a program: a short window of tokens beside a compressed past.

One vector per token is both key and value for all heads. A query sees the last `window` tokens one by one, and the
whole past through vectors that each stand for `ratio` tokens. At the small ratio the pools overlap (so their
projections are twice as wide) and an indexer picks the best `index_top` of them; at the large ratio every one is read.
The output leaves through a low-rank projection of each group of heads.
"""

from dataclasses import dataclass, replace
from typing import Literal

from dragonscale.errors import InputError
from dragonscale.models.component import Written
from dragonscale.models.program import Op, Section, parse_ops


@dataclass(frozen=True)
class LatentAttention(Written):
    """Multi-head latent attention (MLA): keys and values are expanded from one small latent per token, which is all
    that is cached, beside a rotary key shared by all heads.

    `q_rank` of None projects queries directly. An indexer (sparse attention) scores all keys with a few small heads and
    lets the attention read only the best `index_top`; `index_own` of False reuses the choice of an earlier layer.
    `gate` scales each head's result by a sigmoid of one number (`head`), or of one for each of its values (`full`).
    """

    n_heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_head_dim: int
    bias: bool = False
    index_heads: int | None = None
    index_dim: int | None = None
    index_top: int | None = None
    index_own: bool = True
    gate: Literal["", "head", "full"] = ""

    @property
    def key_dim(self) -> int:
        """The size of a query's or key's head."""
        return self.nope_dim + self.rope_dim


_LINES = parse_ops("""
    attention: Qa[b,t,n,c] = Qp[b,t,n,p] · Wkb[c,n,p]
    attention: Ol[b,t,n,c] = attend(Ql[b,t,n,l], C[b,s,c], Kr[b,s,r])
    attention: O[b,t,n,g] = Ol[b,t,n,c] · Wvb[c,n,g]
""")


def absorbed(section: Section) -> Section:
    """The section with its expansions on the query's and the result's side; any other section as it is."""
    if not any(weight.name == "Wkb" for op in section.ops for weight in op.weights):  # keys expanded from a latent
        return section
    ops: list[Op] = []
    for op in section.ops:
        if op.function == "attend":
            ops += _LINES
        elif not (op.output is not None and op.output.name in ("Kp", "V", "K") and op.part == "attention"):
            ops.append(op)
    dims = section.dims | {"l": section.dims["c"] + section.dims["r"]}
    return replace(section, ops=tuple(ops), dims=dims)


@dataclass(frozen=True)
class CompressedAttention(Written):
    """Attention over a window and, where `ratio` is given, over pooled keys; with an indexer if
    `index_heads` is given."""

    n_heads: int
    head_dim: int
    q_rank: int
    o_rank: int
    o_groups: int
    window: int
    ratio: int | None = None
    index_heads: int | None = None
    index_dim: int | None = None
    index_top: int | None = None

    def __post_init__(self) -> None:
        if self.n_heads % self.o_groups:
            raise InputError(f"{self.n_heads} heads cannot be cut into {self.o_groups} groups: not a multiple.")

    @property
    def overlap(self) -> int:
        """How many pools each token is part of."""
        return 2 if self.index_heads is not None else 1

    @property
    def dims(self) -> dict[str, int]:
        dims = {
            "u": self.o_groups,
            "y": self.n_heads // self.o_groups,
            "h": self.head_dim,
            "q": self.q_rank,
            "l": self.o_rank,
        }
        if self.ratio is not None:
            dims |= {"a": self.ratio, "hh": self.overlap * self.head_dim}
        if self.index_heads is not None and self.index_dim is not None:
            dims |= {"i": self.index_heads, "j": self.index_dim, "jj": self.overlap * self.index_dim}
        return dims
