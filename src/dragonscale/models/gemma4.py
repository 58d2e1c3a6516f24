"""What only Gemma 4 has, as lines of a program: experts beside the MLP, and an input of its own for every layer.

Alternating updates, as Gemma 3n has them, as lines of a program.
"""

from dataclasses import dataclass

from dragonscale.models.component import Written, written
from dragonscale.models.ffn import BesideMoe
from dragonscale.models.program import Op, parsed, renamed


@dataclass(frozen=True)
class MlpAndMoe(BesideMoe):
    """A dense MLP and an MoE side by side, each with its norms; the router reads the bare stream."""

    def ops(self) -> tuple[Op, ...]:
        """Both programs, from the normed input `X` and the stream `R` to their sum `M`."""
        dense, (router, *sparse) = self.mlp.ops(), self.moe.ops()
        own = {array.name: f"W0{array.name[1:]}" for op in dense for array in op.weights if array.name[0] == "W"}
        before, after = (parsed(written(name, {}.get)) for name in ("before_experts", "after_experts"))
        experts = (*renamed([router], {"X": "X3"}), *renamed(sparse, {"X": "X2"}))
        return (*renamed(dense, own, {"f": "f0"}), *before, *experts, *after)


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
