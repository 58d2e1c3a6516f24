"""DeepSeek-V4's attention as lines of a program: a short window of tokens beside a compressed past.

One vector per token is both key and value for all heads. A query sees the last `window` tokens one by one, and the
whole past through vectors that each stand for `ratio` tokens. At the small ratio the pools overlap (so their
projections are twice as wide) and an indexer picks the best `index_top` of them; at the large ratio every one is read.
The output leaves through a low-rank projection of each group of heads.
"""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.models.component import Written


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
