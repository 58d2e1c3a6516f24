"""Linear attention as lines of a program: a state of fixed size instead of a cache that grows.

Counted as the recurrence itself, the least work there is: each token updates and reads the state once. The chunked
forms used in training do more multiply-adds, in larger matrices.
"""

from dataclasses import dataclass
from typing import Literal

from dragonscale.models.component import Written


@dataclass(frozen=True)
class DeltaAttention(Written):
    """Gated delta rule (Gated DeltaNet, Kimi Delta Attention): `n_heads` states of `head_dim` by `v_head_dim`.

    `n_kv_heads` query and key heads serve `n_heads` value heads. Short convolutions of width `kernel` run over
    queries, keys and values. The decay is one number per head (`head`), or one per channel through two thin matrices of
    `rank` (`channel`), and so is the output gate: a full projection, or two thin ones.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_head_dim: int
    kernel: int = 4
    decay: Literal["head", "channel"] = "head"
    rank: int | None = None

    @property
    def dims(self) -> dict[str, int]:
        dims = {"n": self.n_heads, "k": self.n_kv_heads, "h": self.head_dim, "g": self.v_head_dim}
        dims |= {"w": self.kernel, "wm": self.kernel - 1}
        return dims | ({"r": self.rank} if self.rank else {})

    @property
    def forget(self) -> str:
        """The dims of the decay."""
        return "n" if self.decay == "head" else "n,h"


@dataclass(frozen=True)
class LightningAttention(Written):
    """MiniMax's lightning attention: full heads, a fixed decay for each, a norm over all heads and an output gate."""

    n_heads: int
    head_dim: int

    @property
    def dims(self) -> dict[str, int]:
        return {"n": self.n_heads, "h": self.head_dim, "g": self.head_dim}
