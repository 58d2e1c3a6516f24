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

    def lines(self) -> list[str]:
        lines = [
            "linear: Q[b,t,k,h] = X[b,t,d] · Wq[d,k,h]",
            "linear: K[b,t,k,h] = X[b,t,d] · Wk[d,k,h]",
            "linear: V[b,t,n,g] = X[b,t,d] · Wv[d,n,g]",
            "linear: B[b,t,n] = X[b,t,d] · Wb[d,n]",
            "linear: cache(Q[b,k,h,wm], K[b,k,h,wm], V[b,n,g,wm], S:fp32[b,n,h,g])",
            "linear: Q[b,t,k,h] = conv(Q[b,t,k,h]; w_convq[k,h,w])",
            "linear: K[b,t,k,h] = conv(K[b,t,k,h]; w_convk[k,h,w])",
            "linear: V[b,t,n,g] = conv(V[b,t,n,g]; w_convv[n,g,w])",
        ]
        source, dim = "X", "d"
        if self.rank:
            lines += ["linear: Fa[b,t,r] = X[b,t,d] · Wfa[d,r]", "linear: Ea[b,t,r] = X[b,t,d] · Wea[d,r]"]
            dim = "r"
        decay = "n" if self.decay == "head" else "n,h"
        forget, gate = (source, source) if not self.rank else ("Fa", "Ea")
        return [
            *lines,
            f"linear: F[b,t,{decay}] = {forget}[b,t,{dim}] · Wf[{dim},{decay}]",
            f"linear: F[b,t,{decay}] = bias(F[b,t,{decay}]; w_dt[{decay}], w_log[n])",
            f"linear: O[b,t,n,g] = delta(Q[b,t,k,h], K[b,t,k,h], V[b,t,n,g], B[b,t,n], F[b,t,{decay}], S:fp32[b,n,h,g])",
            "linear: O[b,t,n,g] = norm(O[b,t,n,g]; w_onorm[g])",
            f"linear: E[b,t,n,g] = {gate}[b,t,{dim}] · We[{dim},n,g]",
            "linear: O[b,t,n,g] = act(O[b,t,n,g], E[b,t,n,g])",
            "linear: A[b,t,d] = O[b,t,n,g] · Wo[n,g,d]",
        ]


@dataclass(frozen=True)
class LightningAttention(Written):
    """MiniMax's lightning attention: full heads, a fixed decay for each, a norm over all heads and an output gate."""

    n_heads: int
    head_dim: int

    @property
    def dims(self) -> dict[str, int]:
        return {"n": self.n_heads, "h": self.head_dim, "g": self.head_dim}

    def lines(self) -> list[str]:
        return [
            "linear: Q[b,t,n,h] = X[b,t,d] · Wq[d,n,h]",
            "linear: K[b,t,n,h] = X[b,t,d] · Wk[d,n,h]",
            "linear: V[b,t,n,g] = X[b,t,d] · Wv[d,n,g]",
            "linear: cache(S:fp32[b,n,h,g])",
            "linear: O[b,t,n,g] = scan(Q[b,t,n,h], K[b,t,n,h], V[b,t,n,g], S:fp32[b,n,h,g])",
            "linear: O[b,t,n,g] = norm(O[b,t,n,g]; w_onorm[n,g])",
            "linear: E[b,t,n,g] = X[b,t,d] · We[d,n,g]",
            "linear: O[b,t,n,g] = act(O[b,t,n,g], E[b,t,n,g])",
            "linear: A[b,t,d] = O[b,t,n,g] · Wo[n,g,d]",
        ]
