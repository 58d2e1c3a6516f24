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
"""

from dataclasses import dataclass, replace

from dragonscale.models.component import Written
from dragonscale.models.program import Op, Section, parse_ops


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
