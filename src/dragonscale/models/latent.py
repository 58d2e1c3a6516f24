"""Multi-head latent attention, with and without an indexer, as lines of a program."""

from dataclasses import dataclass

from dragonscale.models.component import Written


@dataclass(frozen=True)
class LatentAttention(Written):
    """Multi-head latent attention (MLA): keys and values are expanded from one small latent per token, which is all
    that is cached, beside a rotary key shared by all heads.

    `q_rank` of None projects queries directly. An indexer (sparse attention) scores all keys with a few small heads and
    lets the attention read only the best `index_top`; `index_own` of False reuses the choice of an earlier layer.
    `gate` scales each head's result by a sigmoid of one number.
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
    gate: bool = False

    @property
    def dims(self) -> dict[str, int]:
        dims = {
            "n": self.n_heads,
            "c": self.kv_rank,
            "p": self.nope_dim,
            "r": self.rope_dim,
            "h": self.nope_dim + self.rope_dim,
            "g": self.v_head_dim,
        }
        if self.q_rank is not None:
            dims["q"] = self.q_rank
        if self.index_heads is not None and self.index_dim is not None:
            dims |= {"i": self.index_heads, "j": self.index_dim}
        return dims
