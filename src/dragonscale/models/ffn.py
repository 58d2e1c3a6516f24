"""The feed-forward half of a block as lines of a program: a plain or gated MLP, or a mixture of experts.

Each record yields the lines between the normed input `X[b,t,d]` and the output `M[b,t,d]`.
"""

from dataclasses import dataclass

from dragonscale.errors import InputError


@dataclass(frozen=True)
class Mlp:
    """Two matrices, or three when gated (SwiGLU and its kin)."""

    d_ff: int
    gated: bool = True
    bias: bool = False

    @property
    def dims(self) -> dict[str, int]:
        return {"f": self.d_ff}

    def lines(self) -> list[str]:
        """The program of this MLP."""
        lines = ["mlp: U[b,t,f] = X[b,t,d] · Wu[d,f]"]
        lines += ["mlp: U[b,t,f] = bias(U[b,t,f]; w_u[f])"] if self.bias else []
        if self.gated:
            lines += ["mlp: G[b,t,f] = X[b,t,d] · Wg[d,f]"]
            lines += ["mlp: G[b,t,f] = bias(G[b,t,f]; w_g[f])"] if self.bias else []
            lines += ["mlp: H[b,t,f] = act(G[b,t,f], U[b,t,f])"]
        else:
            lines += ["mlp: H[b,t,f] = act(U[b,t,f])"]
        lines += ["mlp: M[b,t,d] = H[b,t,f] · Wd[f,d]"]
        lines += ["mlp: M[b,t,d] = bias(M[b,t,d]; w_d[d])"] if self.bias else []
        return lines


@dataclass(frozen=True)
class Moe:
    """A mixture of experts: each token goes to `experts_per_token` of `n_experts` small MLPs, and through the shared
    ones, which are one MLP of hidden size `shared_d_ff`.

    `router_bias` is a bias added to the router's logits; `score_bias` is the per-expert correction that balances load
    without a loss, kept in the checkpoint but not trained by gradients. `shared_gate` scales the shared expert's output by
    a learnt sigmoid.
    """

    n_experts: int
    experts_per_token: int
    d_ff: int
    shared_d_ff: int = 0
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    score_bias: bool = False
    shared_gate: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.experts_per_token <= self.n_experts:
            raise InputError(f"A token cannot use {self.experts_per_token} of {self.n_experts} experts.")

    @property
    def dims(self) -> dict[str, int]:
        dims = {"f": self.d_ff, "e": self.n_experts, "x": self.experts_per_token}
        return dims | ({"z": self.shared_d_ff} if self.shared_d_ff else {})

    def lines(self) -> list[str]:
        """The program of this mixture."""
        lines = ["router: P[b,t,e] = X[b,t,d] · W_router[d,e]"]
        lines += ["router: P[b,t,e] = bias(P[b,t,e]; w_router[e])"] if self.router_bias else []
        correction = "; w_score[e]" if self.score_bias else ""
        lines += [
            f"router: P[b,t,x] = route(P[b,t,e]{correction})",
            "experts: D[b,t,x,d] = dispatch(X[b,t,d], P[b,t,x])",
            "experts: U[b,t,x,f] = D[b,t,x,d] · Wu[e:x,d,f]",
        ]
        lines += ["experts: U[b,t,x,f] = bias(U[b,t,x,f]; w_u[e:x,f])"] if self.bias else []
        if self.gated:
            lines += ["experts: G[b,t,x,f] = D[b,t,x,d] · Wg[e:x,d,f]"]
            lines += ["experts: G[b,t,x,f] = bias(G[b,t,x,f]; w_g[e:x,f])"] if self.bias else []
            lines += ["experts: H[b,t,x,f] = act(G[b,t,x,f], U[b,t,x,f])"]
        else:
            lines += ["experts: H[b,t,x,f] = act(U[b,t,x,f])"]
        lines += ["experts: Z[b,t,x,d] = H[b,t,x,f] · Wd[e:x,f,d]"]
        lines += ["experts: Z[b,t,x,d] = bias(Z[b,t,x,d]; w_d[e:x,d])"] if self.bias else []
        lines += ["experts: M[b,t,d] = combine(Z[b,t,x,d], P[b,t,x])"]
        return lines + (self._shared() if self.shared_d_ff else [])

    def _shared(self) -> list[str]:
        lines = ["shared: Us[b,t,z] = X[b,t,d] · Wsu[d,z]"]
        if self.gated:
            lines += [
                "shared: Gs[b,t,z] = X[b,t,d] · Wsg[d,z]",
                "shared: Hs[b,t,z] = act(Gs[b,t,z], Us[b,t,z])",
            ]
        else:
            lines += ["shared: Hs[b,t,z] = act(Us[b,t,z])"]
        lines += ["shared: Ms[b,t,d] = Hs[b,t,z] · Wsd[z,d]"]
        lines += ["shared: Ps[b,t] = X[b,t,d] · W_sgate[d]"] if self.shared_gate else []
        return [*lines, "shared: M[b,t,d] = add(M[b,t,d], Ms[b,t,d])"]
