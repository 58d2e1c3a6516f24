"""The feed-forward half of a block as lines of a program: a plain or gated MLP, or experts (MoE).

Each record yields the lines between the normed input `X[b,t,d]` and the output `M[b,t,d]`.
"""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.models.component import Written, projected


@dataclass(frozen=True)
class Mlp(Written):
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
        learnt = "; w_act[a]" if self.act_weights else ""
        norm = ["mlp: H[b,t,f] = norm(H[b,t,f]; w_hidden[f])"] if self.norm else []
        return [*_widened("mlp", "f", self.gated, self.bias, learnt=learnt), *norm, *_narrowed("mlp", "f", self.bias)]


def _widened(part: str, dim: str, gated: bool, bias: bool, tag: str = "", learnt: str = "") -> list[str]:
    """From the input to the hidden layer of size `dim`; `tag` marks the names of a second one in the same block."""
    names = (f"{name}{tag}[b,t,{dim}]" for name in "UGH")
    up, gate, hidden = names

    def project(output: str, letter: str) -> list[str]:
        own = f"w_{tag}{letter}[{dim}]" if bias else ""
        return projected(part, output, "X[b,t,d]", f"W{tag}{letter}[d,{dim}]", own)

    if not gated:
        return [*project(up, "u"), f"{part}: {hidden} = act({up}{learnt})"]
    return [*project(up, "u"), *project(gate, "g"), f"{part}: {hidden} = act({gate}, {up}{learnt})"]


def _narrowed(part: str, dim: str, bias: bool, tag: str = "") -> list[str]:
    """From the hidden layer back to the model's width."""
    own = f"w_{tag}d[d]" if bias else ""
    return projected(part, f"M{tag}[b,t,d]", f"H{tag}[b,t,{dim}]", f"W{tag}d[{dim},d]", own)


@dataclass(frozen=True)
class Moe(Written):
    """Mixture of experts (MoE): each token goes to `experts_per_token` of `n_experts` small MLPs, and through the shared
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
        return [*self._route(), *self._experts(), *(self._shared() if self.shared_d_ff else [])]

    def _route(self) -> list[str]:
        bias = "w_router[e]" if self.router_bias else ""
        lines = projected("router", "P[b,t,e]", "X[b,t,d]", "W_router[d,e]", bias)
        if self.hashed:
            return [*lines, "router: P[b,t,x] = route(P[b,t,e], T_hash[v,x])"]
        learnt = [
            name for name, there in (("w_score[e]", self.score_bias), ("w_expert[e]", self.expert_scale)) if there
        ]
        correction = f"; {', '.join(learnt)}" if learnt else ""
        return [*lines, f"router: P[b,t,x] = route(P[b,t,e]{correction})"]

    def _experts(self) -> list[str]:
        wide, source = ("dl", "Xl[b,t,dl]") if self.latent else ("d", "X[b,t,d]")

        def project(output: str, source: str, letter: str, dims: str) -> list[str]:
            bias = f"w_{letter}[e:x,{dims.split(',')[1]}]" if self.bias else ""
            return projected("experts", output, source, f"W{letter}[e:x,{dims}]", bias)

        dispatched, up, gate = f"D[b,t,x,{wide}]", "U[b,t,x,f]", "G[b,t,x,f]"
        lines = ["experts: Xl[b,t,dl] = X[b,t,d] · W_down[d,dl]"] if self.latent else []
        lines += [f"experts: {dispatched} = dispatch({source}, P[b,t,x])"]
        lines += project(up, dispatched, "u", f"{wide},f")
        lines += project(gate, dispatched, "g", f"{wide},f") if self.gated else []
        lines += [f"experts: H[b,t,x,f] = act({f'{gate}, ' if self.gated else ''}{up})"]
        lines += project(f"Z[b,t,x,{wide}]", "H[b,t,x,f]", "d", f"f,{wide}")
        out = "Ml[b,t,dl]" if self.latent else "M[b,t,d]"
        lines += [f"experts: {out} = combine(Z[b,t,x,{wide}], P[b,t,x])"]
        return lines + (["experts: M[b,t,d] = Ml[b,t,dl] · W_up[dl,d]"] if self.latent else [])

    def _shared(self) -> list[str]:
        lines = _widened("shared", "z", self.gated, self.shared_bias, "s")
        lines += _narrowed("shared", "z", self.shared_bias, "s")
        if self.shared_gate:
            lines += ["shared: Ps[b,t] = X[b,t,d] · W_sgate[d]", "shared: Ms[b,t,d] = act(Ms[b,t,d], Ps[b,t])"]
        return [*lines, "shared: M[b,t,d] = add(M[b,t,d], Ms[b,t,d])"]
