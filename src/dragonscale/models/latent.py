"""Multi-head latent attention, with and without an indexer, as lines of a program."""

from dataclasses import dataclass

from dragonscale.models.component import Written, projected


@dataclass(frozen=True)
class LatentAttention(Written):
    """Multi-head latent attention (MLA): keys and values are expanded from one small latent per token, which is all
    that is cached, beside a rotary key shared by all heads.

    `q_rank` of None projects queries directly. An indexer (sparse attention) scores all keys with a few small heads and
    lets the attention read only the best `index_top`; `index_own` of False reuses the choice of an earlier layer.
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

    def lines(self) -> list[str]:
        """The program of this attention, keys and values expanded as in training and prefill."""
        lines = [
            *self._queries(),
            *self._project("C[b,t,c]", "X[b,t,d]", "kva", "d,c"),
            *self._project("Kr[b,t,r]", "X[b,t,d]", "kr", "d,r"),
            "attention: C[b,t,c] = norm(C[b,t,c]; w_kvnorm[c])",
            "attention: cache(C[b,s,c], Kr[b,s,r])",
        ]
        lines += self._indexer() if self.index_heads is not None and self.index_own else []
        lines += [
            "attention: Kp[b,t,n,p] = C[b,t,c] · Wkb[c,n,p]",
            "attention: V[b,t,n,g] = C[b,t,c] · Wvb[c,n,g]",
            "attention: K[b,t,n,h] = join(Kp[b,t,n,p], Kr[b,t,r])",
            "attention: O[b,t,n,g] = attend(Q[b,t,n,h], K[b,s,n,h], V[b,s,n,g])",
        ]
        return lines + self._project("A[b,t,d]", "O[b,t,n,g]", "o", "n,g,d")

    def _project(self, output: str, source: str, tag: str, dims: str) -> list[str]:
        bias = f"w_{tag}[{dims.split(',')[-1]}]" if self.bias else ""
        return projected("attention", output, source, f"W{tag}[{dims}]", bias)

    def _queries(self) -> list[str]:
        if self.q_rank is None:
            return ["attention: Q[b,t,n,h] = X[b,t,d] · Wq[d,n,h]"]
        return [
            *self._project("Cq[b,t,q]", "X[b,t,d]", "qa", "d,q"),
            "attention: Cq[b,t,q] = norm(Cq[b,t,q]; w_qnorm[q])",
            "attention: Q[b,t,n,h] = Cq[b,t,q] · Wqb[q,n,h]",
        ]

    def _indexer(self) -> list[str]:
        source, dim = ("X", "d") if self.q_rank is None else ("Cq", "q")
        return [
            f"indexer: Qi[b,t,i,j] = {source}[b,t,{dim}] · Wiq[{dim},i,j]",
            "indexer: Ki[b,t,j] = X[b,t,d] · Wik[d,j]",
            "indexer: Ki[b,t,j] = norm(Ki[b,t,j]; w_iknorm[j], w_iknorm_bias[j])",
            "indexer: Gi[b,t,i] = X[b,t,d] · Wiw[d,i]",
            "indexer: cache(Ki[b,s,j])",
            "indexer: Si[b,t,s] = score(Qi[b,t,i,j], Ki[b,s,j], Gi[b,t,i])",
        ]
