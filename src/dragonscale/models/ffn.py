"""The feed-forward half of a block as lines of a program: a plain or gated MLP, or a mixture of experts.

Each record yields the lines between the normed input `X[b,t,d]` and the output `M[b,t,d]`.
"""

from dataclasses import dataclass

from dragonscale.errors import InputError


@dataclass(frozen=True)
class Mlp:
    """Two matrices, or three when gated (SwiGLU and its kin).

    `act_weights` counts the learnt scalars of the nonlinearity itself, and `norm` normalises the hidden layer; few
    models have either.
    """

    d_ff: int
    gated: bool = True
    bias: bool = False
    act_weights: int = 0
    norm: bool = False

    @property
    def dims(self) -> dict[str, int]:
        return {"f": self.d_ff} | ({"a": self.act_weights} if self.act_weights else {})

    def lines(self) -> list[str]:
        """The program of this MLP."""
        learnt = "; w_act[a]" if self.act_weights else ""
        lines = ["mlp: U[b,t,f] = X[b,t,d] · Wu[d,f]"]
        lines += ["mlp: U[b,t,f] = bias(U[b,t,f]; w_u[f])"] if self.bias else []
        if self.gated:
            lines += ["mlp: G[b,t,f] = X[b,t,d] · Wg[d,f]"]
            lines += ["mlp: G[b,t,f] = bias(G[b,t,f]; w_g[f])"] if self.bias else []
            lines += [f"mlp: H[b,t,f] = act(G[b,t,f], U[b,t,f]{learnt})"]
        else:
            lines += [f"mlp: H[b,t,f] = act(U[b,t,f]{learnt})"]
        lines += ["mlp: H[b,t,f] = norm(H[b,t,f]; w_hidden[f])"] if self.norm else []
        lines += ["mlp: M[b,t,d] = H[b,t,f] · Wd[f,d]"]
        lines += ["mlp: M[b,t,d] = bias(M[b,t,d]; w_d[d])"] if self.bias else []
        return lines


@dataclass(frozen=True)
class Moe:
    """A mixture of experts: each token goes to `experts_per_token` of `n_experts` small MLPs, and through the shared
    ones, which are one MLP of hidden size `shared_d_ff`.

    `router_bias` is a bias added to the router's logits; `score_bias` is the per-expert correction that balances load
    without a loss, kept in the checkpoint but not trained by gradients. `shared_gate` scales the shared expert's output
    by a learnt sigmoid. `hashed` picks experts from a fixed table of the token's id; the router then only weighs them.
    `expert_scale` is a learnt factor for each expert's weight.
    `latent` is the smaller width at which the experts work, between a projection down and one up. `bias` gives the
    experts biases, `shared_bias` the shared one.
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
    shared_bias: bool = False
    hashed: bool = False
    latent: int | None = None
    expert_scale: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.experts_per_token <= self.n_experts:
            raise InputError(f"A token cannot use {self.experts_per_token} of {self.n_experts} experts.")

    @property
    def dims(self) -> dict[str, int]:
        dims = {"f": self.d_ff, "e": self.n_experts, "x": self.experts_per_token}
        dims |= {"z": self.shared_d_ff} if self.shared_d_ff else {}
        return dims | ({"dl": self.latent} if self.latent else {})

    def lines(self) -> list[str]:
        """The program of this mixture."""
        return [*self._route(), *self._experts(), *(self._shared() if self.shared_d_ff else [])]

    def _route(self) -> list[str]:
        lines = ["router: P[b,t,e] = X[b,t,d] · W_router[d,e]"]
        lines += ["router: P[b,t,e] = bias(P[b,t,e]; w_router[e])"] if self.router_bias else []
        if self.hashed:
            return [*lines, "router: P[b,t,x] = route(P[b,t,e], T_hash[v,x])"]
        learnt = [
            name for name, there in (("w_score[e]", self.score_bias), ("w_expert[e]", self.expert_scale)) if there
        ]
        correction = f"; {', '.join(learnt)}" if learnt else ""
        return [*lines, f"router: P[b,t,x] = route(P[b,t,e]{correction})"]

    def _experts(self) -> list[str]:
        wide = "dl" if self.latent else "d"
        lines = ["experts: Xl[b,t,dl] = X[b,t,d] · W_down[d,dl]"] if self.latent else []
        source = "Xl[b,t,dl]" if self.latent else "X[b,t,d]"
        lines += [
            f"experts: D[b,t,x,{wide}] = dispatch({source}, P[b,t,x])",
            f"experts: U[b,t,x,f] = D[b,t,x,{wide}] · Wu[e:x,{wide},f]",
        ]
        lines += ["experts: U[b,t,x,f] = bias(U[b,t,x,f]; w_u[e:x,f])"] if self.bias else []
        if self.gated:
            lines += [f"experts: G[b,t,x,f] = D[b,t,x,{wide}] · Wg[e:x,{wide},f]"]
            lines += ["experts: G[b,t,x,f] = bias(G[b,t,x,f]; w_g[e:x,f])"] if self.bias else []
            lines += ["experts: H[b,t,x,f] = act(G[b,t,x,f], U[b,t,x,f])"]
        else:
            lines += ["experts: H[b,t,x,f] = act(U[b,t,x,f])"]
        lines += [f"experts: Z[b,t,x,{wide}] = H[b,t,x,f] · Wd[e:x,f,{wide}]"]
        lines += [f"experts: Z[b,t,x,{wide}] = bias(Z[b,t,x,{wide}]; w_d[e:x,{wide}])"] if self.bias else []
        if self.latent:
            return [
                *lines,
                "experts: Ml[b,t,dl] = combine(Z[b,t,x,dl], P[b,t,x])",
                "experts: M[b,t,d] = Ml[b,t,dl] · W_up[dl,d]",
            ]
        return [*lines, "experts: M[b,t,d] = combine(Z[b,t,x,d], P[b,t,x])"]

    def _shared(self) -> list[str]:
        bias = self.shared_bias
        lines = ["shared: Us[b,t,z] = X[b,t,d] · Wsu[d,z]"]
        lines += ["shared: Us[b,t,z] = bias(Us[b,t,z]; w_su[z])"] if bias else []
        if self.gated:
            lines += ["shared: Gs[b,t,z] = X[b,t,d] · Wsg[d,z]"]
            lines += ["shared: Gs[b,t,z] = bias(Gs[b,t,z]; w_sg[z])"] if bias else []
            lines += ["shared: Hs[b,t,z] = act(Gs[b,t,z], Us[b,t,z])"]
        else:
            lines += ["shared: Hs[b,t,z] = act(Us[b,t,z])"]
        lines += ["shared: Ms[b,t,d] = Hs[b,t,z] · Wsd[z,d]"]
        lines += ["shared: Ms[b,t,d] = bias(Ms[b,t,d]; w_sd[d])"] if bias else []
        if self.shared_gate:
            lines += [
                "shared: Ps[b,t] = X[b,t,d] · W_sgate[d]",
                "shared: Ms[b,t,d] = act(Ms[b,t,d], Ps[b,t])",
            ]
        return [*lines, "shared: M[b,t,d] = add(M[b,t,d], Ms[b,t,d])"]
