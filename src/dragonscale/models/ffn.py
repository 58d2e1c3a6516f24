"""The feed-forward half of a block as lines of a program: a plain or gated MLP, or experts (MoE).

Each record yields the lines between the normed input `X[b,t,d]` and the output `M[b,t,d]`.

What only Gemma 4 has, as lines of a program: experts beside the MLP, and an input of its own for every layer.

Alternating updates, as Gemma 3n has them, as lines of a program.
"""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.models.component import Component, Written, written
from dragonscale.models.program import Op, parsed, renamed, suffixed


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


@dataclass(frozen=True)
class Moe(Written):
    """Mixture of experts (MoE): each token goes to `experts_per_token` of `n_experts` small MLPs, and through the
    shared ones, which are one MLP of hidden size `shared_d_ff`.

    `router_bias` is a bias added to the router's logits; `score_bias` is the per-expert correction that balances load
    without a loss, kept in the checkpoint but not trained by gradients. `shared_gate` scales the shared expert's output
    by a learnt sigmoid. `hashed` picks experts from a fixed table of the token's id; the router then only weighs them.
    `expert_scale` is a learnt factor for each expert's weight.
    `latent` is the smaller width at which the experts work, between a projection down and one up (`latent_norm`: after
    a norm). `bias` gives the
    experts biases, `shared_bias` the shared one, `out_bias` their sum. `zero_experts` are routed to like the others and
    return what they are given; `experts_per_token` does not count them.
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
    latent_norm: bool = False
    expert_scale: bool = False
    zero_experts: int = 0
    out_bias: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.experts_per_token <= self.n_experts:
            raise InputError(f"A token cannot use {self.experts_per_token} of {self.n_experts} experts.")

    @property
    def slots(self) -> int:
        """What the router scores: experts, and those that do nothing; 0 where there are none of these."""
        return self.n_experts + self.zero_experts if self.zero_experts else 0

    @property
    def wide(self) -> str:
        """The dim at which the experts work."""
        return "dl" if self.latent else "d"


@dataclass(frozen=True)
class BesideMoe(Component):
    """A dense MLP and an MoE on the same normed input, their results added (LongCat's shortcut)."""

    mlp: Mlp
    moe: Moe

    @property
    def dims(self) -> dict[str, int]:
        return {"f0": self.mlp.d_ff} | self.moe.dims

    def ops(self) -> tuple[Op, ...]:
        """Both programs; the MLP's arrays get a 0 after their names."""
        added = parsed(["residual: M[b,t,d] = add(M[b,t,d], M0[b,t,d])"])
        return (*suffixed(self.mlp.ops(), "0", {"f": "f0"}), *self.moe.ops(), *added)


@dataclass(frozen=True)
class MlpAndMoe(BesideMoe):
    """A dense MLP and an MoE side by side, each with its norms; the router reads the bare stream."""

    def ops(self) -> tuple[Op, ...]:
        """Both programs, from the normed input `X` and the stream `R` to their sum `M`."""
        dense, (router, *sparse) = self.mlp.ops(), self.moe.ops()
        # the dense weights get names of their own: Wu is W0u beside the experts' Wu
        weights = [weight.name for op in dense for weight in op.weights if weight.name[0] == "W"]
        names = {name: f"W0{name[1:]}" for name in weights}
        before, after = parsed(written("before_experts", {}.get)), parsed(written("after_experts", {}.get))
        # X2 is the experts' own normed input, X3 what their router reads
        experts = (*renamed([router], {"X": "X3"}), *renamed(sparse, {"X": "X2"}))
        return (*renamed(dense, names, {"f": "f0"}), *before, *experts, *after)


@dataclass(frozen=True)
class AttentionResidual(Written):
    """Kimi K3's residual stream: each half reads a softmax over the outputs of earlier blocks of layers. Its weights
    are counted; that these outputs are read again is not."""


@dataclass(frozen=True)
class LayerInput(Written):
    """A small embedding of the token that is this layer's alone, gated by the stream and added to it; and the scalar
    that every layer ends with. A width of 0 leaves only the scalar."""

    width: int


@dataclass(frozen=True)
class AltUp(Written):
    """What a layer does beside attention and MLP: a low-rank detour (`laurel`), `streams` copies of the stream of which
    it works on one, predicting and correcting the others, and an input of its own of `width`."""

    streams: int
    laurel: int
    width: int

    @property
    def dims(self) -> dict[str, int]:
        streams = self.streams
        return {"an": streams, "an2": streams, "aa": streams**2, "lr": self.laurel, "pl": self.width}
