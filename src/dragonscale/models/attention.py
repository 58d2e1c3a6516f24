"""Softmax attention as lines of a program: MHA, GQA and MQA with their biases, norms, gates, sinks and windows.

Each record yields the lines between the block's normed input `X[b,t,d]` and the mixer's output `A[b,t,d]`, and the
sizes of the dims they use.
"""

from dataclasses import dataclass
from typing import Literal

from dragonscale.errors import InputError
from dragonscale.models.component import Written


@dataclass(frozen=True)
class Attention(Written):
    """Grouped-query attention: `n_heads` query heads share `n_kv_heads` key and value heads.

    `qk_norm` normalises queries and keys: `head` with one weight of the head's size for all heads, `all` with a weight
    of its own for every head, `plain` without any. `gate` multiplies the output by a sigmoid of a projection as large
    as the queries (`full`, with a bias where they have one) or of one number per head (`head`). `sinks` adds one learnt logit per head. `window` keeps
    only the last so many keys; `chunk` cuts the sequence into independent chunks. `kv` says where keys and values come
    from: their own projections, one projection for both (`tied`), or an earlier layer's cache (`borrowed`). `v_norm`
    normalises the values without a weight; `out_norm` normalises all heads' results together before they are projected.

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
    kv: Literal["own", "tied", "borrowed"] = "own"
    v_norm: bool = False
    out_norm: bool = False

    def __post_init__(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise InputError(f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads: not a multiple.")

    @property
    def dims(self) -> dict[str, int]:
        size = self.head_dim
        return {"n": self.n_heads, "k": self.n_kv_heads, "h": size, "g": self.v_head_dim or size}
