"""Softmax attention as lines of a program: MHA, GQA and MQA with their biases, norms, gates, sinks and windows; and MLA.

Each record yields the lines between the block's normed input `X[b,t,d]` and the mixer's output `A[b,t,d]`, and the
sizes of the dims they use.
"""

from dataclasses import dataclass
from typing import Literal

from dragonscale.errors import InputError


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention: `n_heads` query heads share `n_kv_heads` key and value heads.

    `qk_norm` normalises queries and keys per head (one weight of the head's size shared by all heads) or over all heads
    together. `gate` multiplies the output by a sigmoid of a projection as large as the queries. `sinks` adds one learnt
    logit per head. `window` keeps only the last so many keys; `chunk` cuts the sequence into independent pieces.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int | None = None
    chunk: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["", "head", "all"] = ""
    gate: bool = False
    sinks: bool = False

    def __post_init__(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise InputError(f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads: not a multiple.")

    @property
    def dims(self) -> dict[str, int]:
        return {
            "n": self.n_heads,
            "k": self.n_kv_heads,
            "h": self.head_dim,
            "g": self.v_head_dim or self.head_dim,
        }

    def lines(self) -> list[str]:
        """The program of this attention."""
        lines = [
            "attention: Q[b,t,n,h] = X[b,t,d] · Wq[d,n,h]",
            "attention: K[b,t,k,h] = X[b,t,d] · Wk[d,k,h]",
            "attention: V[b,t,k,g] = X[b,t,d] · Wv[d,k,g]",
        ]
        if self.qkv_bias:
            lines += [
                "attention: Q[b,t,n,h] = bias(Q[b,t,n,h]; w_q[n,h])",
                "attention: K[b,t,k,h] = bias(K[b,t,k,h]; w_k[k,h])",
                "attention: V[b,t,k,g] = bias(V[b,t,k,g]; w_v[k,g])",
            ]
        if self.qk_norm:
            scale_q, scale_k = ("h", "h") if self.qk_norm == "head" else ("n,h", "k,h")
            lines += [
                f"attention: Q[b,t,n,h] = norm(Q[b,t,n,h]; w_qnorm[{scale_q}])",
                f"attention: K[b,t,k,h] = norm(K[b,t,k,h]; w_knorm[{scale_k}])",
            ]
        sinks = "; w_sinks[n]" if self.sinks else ""
        lines += [
            "attention: cache(K[b,s,k,h], V[b,s,k,g])",
            f"attention: O[b,t,n,g] = attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,g]{sinks})",
        ]
        if self.gate:
            lines += [
                "attention: E[b,t,n,g] = X[b,t,d] · W_gate[d,n,g]",
                "attention: O[b,t,n,g] = act(O[b,t,n,g], E[b,t,n,g])",
            ]
        lines.append("attention: A[b,t,d] = O[b,t,n,g] · Wo[n,g,d]")
        if self.out_bias:
            lines.append("attention: A[b,t,d] = bias(A[b,t,d]; w_o[d])")
        return lines


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA): keys and values are expanded from one small latent per token, which is all
    that is cached, beside a rotary key shared by all heads.

    `q_rank` of None projects queries directly. An indexer (sparse attention) scores all keys with a few small heads and
    lets the attention read only the best `index_top`.
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

    @property
    def dims(self) -> dict[str, int]:
        dims = {
            "n": self.n_heads,
            "c": self.kv_rank,
            "p": self.nope_dim,
            "r": self.rope_dim,
            "h": self.nope_dim + self.rope_dim,
            "g": self.v_head_dim,
            "cr": self.kv_rank + self.rope_dim,
        }
        if self.q_rank is not None:
            dims["q"] = self.q_rank
        if self.index_heads is not None and self.index_dim is not None:
            dims |= {"i": self.index_heads, "j": self.index_dim}
        return dims

    def lines(self) -> list[str]:
        """The program of this attention, keys and values expanded as in training and prefill."""
        lines = ["attention: Q[b,t,n,h] = X[b,t,d] · Wq[d,n,h]"]
        query_source, query_dim = "X", "d"
        if self.q_rank is not None:
            query_source, query_dim = "Cq", "q"
            lines = ["attention: Cq[b,t,q] = X[b,t,d] · Wqa[d,q]"]
            lines += ["attention: Cq[b,t,q] = bias(Cq[b,t,q]; w_qa[q])"] if self.bias else []
            lines += [
                "attention: Cq[b,t,q] = norm(Cq[b,t,q]; w_qnorm[q])",
                "attention: Q[b,t,n,h] = Cq[b,t,q] · Wqb[q,n,h]",
            ]
        lines.append("attention: Ckr[b,t,cr] = X[b,t,d] · Wkva[d,cr]")
        lines += ["attention: Ckr[b,t,cr] = bias(Ckr[b,t,cr]; w_kva[cr])"] if self.bias else []
        lines += [
            "attention: C[b,t,c] = norm(Ckr[b,t,cr]; w_kvnorm[c])",
            "attention: cache(Ckr[b,s,cr])",
        ]
        if self.index_heads is not None:
            lines += [
                f"indexer: Qi[b,t,i,j] = {query_source}[b,t,{query_dim}] · Wiq[{query_dim},i,j]",
                "indexer: Ki[b,t,j] = X[b,t,d] · Wik[d,j]",
                "indexer: Ki[b,t,j] = norm(Ki[b,t,j]; w_iknorm[j], w_ikbias[j])",
                "indexer: Gi[b,t,i] = X[b,t,d] · Wiw[d,i]",
                "indexer: cache(Ki[b,s,j])",
                "indexer: Si[b,t,s] = score(Qi[b,t,i,j], Ki[b,s,j], Gi[b,t,i])",
            ]
        lines += [
            "attention: K[b,t,n,p] = C[b,t,c] · Wkb[c,n,p]",
            "attention: V[b,t,n,g] = C[b,t,c] · Wvb[c,n,g]",
            "attention: O[b,t,n,g] = attend(Q[b,t,n,h], K[b,s,n,h], V[b,s,n,g])",
            "attention: A[b,t,d] = O[b,t,n,g] · Wo[n,g,d]",
        ]
        lines += ["attention: A[b,t,d] = bias(A[b,t,d]; w_o[d])"] if self.bias else []
        return lines
