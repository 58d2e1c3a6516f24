"""What only Gemma 4 has, as lines of a program: a mixture beside the MLP, and an input of its own for every layer."""

from dataclasses import dataclass

from dragonscale.models.ffn import Mlp, Moe


@dataclass(frozen=True)
class MlpAndMoe:
    """A dense MLP and a mixture of experts side by side, each with its norms; the router reads the bare stream."""

    mlp: Mlp
    moe: Moe

    @property
    def dims(self) -> dict[str, int]:
        return {"f0": self.mlp.d_ff} | self.moe.dims

    def lines(self) -> list[str]:
        """Both programs, from the normed input `X` and the stream `R` to their sum `M`."""
        dense = [line.replace("f]", "f0]").replace("f,", "f0,") for line in self.mlp.lines()]
        dense = [line.replace("W", "W0") for line in dense]
        sparse = [line.replace("X[b,t,d]", "X2[b,t,d]") for line in self.moe.lines()]
        sparse[0] = sparse[0].replace("X2[b,t,d]", "X3[b,t,d]")
        return [
            *dense,
            "norm: M0[b,t,d] = norm(M[b,t,d]; w_dense_after[d])",
            "norm: X2[b,t,d] = norm(R[b,t,d]; w_experts[d])",
            "router: X3[b,t,d] = norm(R[b,t,d]; w_router_scale[d])",
            *sparse,
            "norm: M[b,t,d] = norm(M[b,t,d]; w_experts_after[d])",
            "residual: M[b,t,d] = add(M[b,t,d], M0[b,t,d])",
        ]


@dataclass(frozen=True)
class LayerInput:
    """A small embedding of the token that is this layer's alone, gated by the stream and added to it; and the scalar
    that every layer ends with. A width of 0 leaves only the scalar."""

    width: int

    @property
    def dims(self) -> dict[str, int]:
        return {"pl": self.width, "h1": 1} if self.width else {"h1": 1}

    def lines(self) -> list[str]:
        """The lines at the end of the block, on the stream `R`."""
        scale = "residual: R[b,t,d] = mix(R[b,t,d]; w_scalar[h1])"
        if not self.width:
            return [scale]
        return [
            "layer_input: Pg[b,t,pl] = R[b,t,d] · W_input_gate[d,pl]",
            "layer_input: Pg[b,t,pl] = act(Pg[b,t,pl], L[b,t,pl])",
            "layer_input: Pd[b,t,d] = Pg[b,t,pl] · W_input[pl,d]",
            "norm: Pd[b,t,d] = norm(Pd[b,t,d]; w_input_after[d])",
            "residual: R[b,t,d] = add(R[b,t,d], Pd[b,t,d])",
            scale,
        ]
