"""Softmax attention as lines of a program: MHA, GQA and MQA with their biases, norms, gates, sinks and windows.

Each record yields the lines between the block's normed input `X[b,t,d]` and the mixer's output `A[b,t,d]`, and the
sizes of the dims they use.
"""

from dataclasses import dataclass
from typing import Literal

from dragonscale.errors import InputError
from dragonscale.models.component import Written, projected


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

    def lines(self) -> list[str]:
        sinks = "; w_sinks[n]" if self.sinks else ""
        lines = [*self._project(), *self._norm()]
        lines += ["attention: cache(K[b,s,k,h], V[b,s,k,g])"] if self.kv != "borrowed" else []
        lines += [f"attention: O[b,t,n,g] = attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,g]{sinks})"]
        if self.gate:
            dims = "n,g" if self.gate == "full" else "n"
            bias = "w_gate[n,g]" if self.qkv_bias and self.gate == "full" else ""
            lines += projected("attention", f"E[b,t,{dims}]", "X[b,t,d]", f"W_gate[d,{dims}]", bias)
            lines += [f"attention: O[b,t,n,g] = act(O[b,t,n,g], E[b,t,{dims}])"]
        lines += ["attention: O[b,t,n,g] = norm(O[b,t,n,g]; w_onorm[n,g])"] if self.out_norm else []
        bias = "w_o[d]" if self.out_bias else ""
        return lines + projected("attention", "A[b,t,d]", "O[b,t,n,g]", "Wo[n,g,d]", bias)

    def _project(self) -> list[str]:
        def project(name: str, dims: str) -> list[str]:
            tag = name.lower()
            bias = f"w_{tag}[{dims}]" if self.qkv_bias else ""
            return projected("attention", f"{name}[b,t,{dims}]", "X[b,t,d]", f"W{tag}[d,{dims}]", bias)

        if self.kv == "borrowed":
            return project("Q", "n,h")
        lines = [*project("Q", "n,h"), *project("K", "k,h")]
        if self.kv == "tied":
            return [*lines, "attention: V[b,t,k,g] = norm(K[b,t,k,h])"]
        tail = ["attention: V[b,t,k,g] = norm(V[b,t,k,g])"] if self.v_norm else []
        return [*lines, *project("V", "k,g"), *tail]

    def _norm(self) -> list[str]:
        if not self.qk_norm:
            return []
        lines: list[str] = []
        for name, heads in (("Q", "n"), ("K", "k")) if self.kv != "borrowed" else (("Q", "n"),):
            dims = {"head": "h", "all": f"{heads},h", "plain": ""}[self.qk_norm]
            weight = f"w_{name.lower()}norm"
            weights = f"; {weight}[{dims}]" if dims else ""
            weights += f", {weight}_bias[{dims}]" if dims and self.qk_norm_bias else ""
            lines.append(f"attention: {name}[b,t,{heads},h] = norm({name}[b,t,{heads},h]{weights})")
        return lines
