"""DeepSeek-V4's attention as lines of a program: a short window of tokens beside a compressed past.

One vector per token is both key and value for all heads. A query sees the last `window` tokens one by one, and the
whole past through vectors that each stand for `ratio` tokens. At the small ratio the pools overlap (so their projections
are twice as wide) and an indexer picks the best `index_top` of them; at the large ratio every one is read. The output
leaves through a low-rank projection of each group of heads.
"""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.models.component import Written


@dataclass(frozen=True)
class CompressedAttention(Written):
    """Attention over a window and, where `ratio` is given, over pooled keys; with an indexer if `index_heads` is given."""

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

    def lines(self) -> list[str]:
        keys = "C[b,s,h], Z[b,m,h]" if self.ratio is not None else "C[b,s,h]"
        return [
            "attention: Cq[b,t,q] = X[b,t,d] · Wqa[d,q]",
            "attention: Cq[b,t,q] = norm(Cq[b,t,q]; w_qnorm[q])",
            "attention: Q[b,t,u,y,h] = Cq[b,t,q] · Wqb[q,u,y,h]",
            "attention: Q[b,t,u,y,h] = norm(Q[b,t,u,y,h])",
            "attention: C[b,t,h] = X[b,t,d] · Wkv[d,h]",
            "attention: C[b,t,h] = norm(C[b,t,h]; w_kvnorm[h])",
            "attention: cache(C[b,s,h])",
            *(self._pool("attention", "Z", "z", "h", "hh") if self.ratio is not None else []),
            *(self._indexer() if self.index_heads is not None else []),
            f"attention: O[b,t,u,y,h] = attend(Q[b,t,u,y,h], {keys}; w_sinks[u,y])",
            "attention: Ol[b,t,u,l] = O[b,t,u,y,h] · Woa[u,y,h,l]",
            "attention: A[b,t,d] = Ol[b,t,u,l] · Wob[u,l,d]",
        ]

    def _pool(self, part: str, name: str, tag: str, dim: str, wide: str) -> list[str]:
        """Every `ratio` tokens become one key: their projections, weighed by a softmax of gates, added up."""
        return [
            f"{part}: {name}c[b,t,{wide}] = X[b,t,d] · W{tag}c[d,{wide}]",
            f"{part}: {name}g[b,t,{wide}] = X[b,t,d] · W{tag}g[d,{wide}]",
            f"{part}: {name}[b,m,{dim}] = pool({name}c[b,t,{wide}], {name}g[b,t,{wide}]; w_{tag}place[a,{wide}])",
            f"{part}: {name}[b,m,{dim}] = norm({name}[b,m,{dim}]; w_{tag}norm[{dim}])",
            f"{part}: cache({name}[b,m,{dim}], {name}c[b,a,{wide}], {name}g[b,a,{wide}])",
        ]

    def _indexer(self) -> list[str]:
        return [
            "indexer: Qi[b,t,i,j] = Cq[b,t,q] · Wiq[q,i,j]",
            *self._pool("indexer", "Ki", "i", "j", "jj"),
            "indexer: Gi[b,t,i] = X[b,t,d] · Wiw[d,i]",
            "indexer: Si[b,t,m] = score(Qi[b,t,i,j], Ki[b,m,j], Gi[b,t,i])",
        ]
