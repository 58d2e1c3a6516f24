"""State-space mixers as lines of a program: Mamba, Mamba-2 and the short gated convolution of LFM2.

As with linear attention, the recurrence itself is what is counted.

Linear attention as lines of a program: a state of fixed size instead of a cache that grows.

Counted as the recurrence itself, the least work there is: each token updates and reads the state once. The chunked
forms used in training do more multiply-adds, in larger matrices.

Blocks whose weights several layers share, as Zamba 2 has them, as lines of a program.
"""

from dataclasses import dataclass
from typing import Literal

from dragonscale.models.component import Component, Written
from dragonscale.models.program import Op


class Convolved(Written):
    """A mixer with a short convolution of width `kernel`, which remembers the tokens before the newest."""

    kernel: int

    @property
    def dims(self) -> dict[str, int]:
        return super().dims | {"w": self.kernel, "wm": self.kernel - 1}


@dataclass(frozen=True)
class Mamba2(Convolved):
    """Mamba-2: `n_heads` states of `head_dim` by `state`; groups of heads share their input and output maps."""

    n_heads: int
    head_dim: int
    state: int
    n_groups: int
    kernel: int = 4
    conv_bias: bool = True
    proj_bias: bool = False
    out_bias: bool = False
    norm: bool = True


@dataclass(frozen=True)
class Mamba(Convolved):
    """The first Mamba: `inner` channels, each with a state of its own; `norms` are Jamba's, on step, input and output
    maps."""

    inner: int
    state: int
    rank: int
    kernel: int = 4
    conv_bias: bool = True
    proj_bias: bool = False
    norms: bool = False


@dataclass(frozen=True)
class ShortConv(Convolved):
    """LFM2's mixer: a short convolution over a gated input, gated again on its way out."""

    width: int
    kernel: int
    bias: bool = False


@dataclass(frozen=True)
class DeltaAttention(Convolved):
    """Gated delta rule (Gated DeltaNet, Kimi Delta Attention): `n_heads` states of `head_dim` by `v_head_dim`.

    `n_kv_heads` query and key heads serve `n_heads` value heads. Short convolutions of width `kernel` run over
    queries, keys and values. The decay is one number per head (`head`), or one per channel through two thin matrices of
    `rank` (`channel`), and so is the output gate: a full projection, or two thin ones unless `full_gate` is on.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_head_dim: int
    kernel: int = 4
    decay: Literal["head", "channel"] = "head"
    rank: int | None = None
    full_gate: bool = False

    @property
    def thin_gate(self) -> bool:
        """Whether the output gate goes through two thin matrices."""
        return self.rank is not None and not self.full_gate

    @property
    def forget(self) -> str:
        """The dims of the decay."""
        return "n" if self.decay == "head" else "n,h"


@dataclass(frozen=True)
class LightningAttention(Written):
    """MiniMax's lightning attention: full heads, a fixed decay for each, a norm over all heads and an output gate."""

    n_heads: int
    head_dim: int


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
