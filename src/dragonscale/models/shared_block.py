"""Blocks whose weights several layers share, as Zamba 2 has them, as lines of a program."""

from dataclasses import dataclass

from dragonscale.models.component import Component, Written
from dragonscale.models.program import Op


@dataclass(frozen=True)
class SharedBlock(Written):
    """Attention and an MLP whose matrices belong to all layers that use this `block`, with low-rank adapters of `rank`
    that are each layer's own: of the MLP always, of the attention with `adapters`. It reads the stream and the first
    embedding side by side, `2 * d_model` wide."""

    block: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    rank: int
    adapters: bool = False
    bias: bool = False

    @property
    def dims(self) -> dict[str, int]:
        heads = {"n": self.n_heads, "k": self.n_kv_heads, "h": self.head_dim}
        wide = {"d2": 2 * self.d_model, "dd": self.d_model, "f": self.d_ff, "f2": 2 * self.d_ff}
        return heads | wide | {"ar": self.rank}

    @property
    def shared(self) -> tuple[str, ...]:
        """The weights that are there once, however many layers use them."""
        return tuple(sorted({w.name for op in self.ops() for w in op.weights if f"shared{self.block}" in w.name}))


@dataclass(frozen=True)
class BlockThenMixer(Component):
    """A shared block before a layer's own mixer."""

    block: SharedBlock
    mixer: Component

    @property
    def shared(self) -> tuple[str, ...]:
        return self.block.shared

    @property
    def dims(self) -> dict[str, int]:
        return self.block.dims | self.mixer.dims

    def ops(self) -> tuple[Op, ...]:
        return (*self.block.ops(), *self.mixer.ops())
