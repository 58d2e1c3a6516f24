"""State-space mixers as lines of a program: Mamba, Mamba-2 and the short gated convolution of LFM2.

As with linear attention, the recurrence itself is what is counted.
"""

from dataclasses import dataclass

from dragonscale.models.component import Written


@dataclass(frozen=True)
class Mamba2(Written):
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

    @property
    def dims(self) -> dict[str, int]:
        dims = {"mn": self.n_heads, "mh": self.head_dim, "ms": self.state, "mk": self.n_groups}
        return dims | {"w": self.kernel, "wm": self.kernel - 1}


@dataclass(frozen=True)
class Mamba(Written):
    """The first Mamba: `inner` channels, each with a state of its own; `norms` are Jamba's, on step, input and output
    maps."""

    inner: int
    state: int
    rank: int
    kernel: int = 4
    conv_bias: bool = True
    proj_bias: bool = False
    norms: bool = False

    @property
    def dims(self) -> dict[str, int]:
        dims = {"f1": self.inner, "ms": self.state, "r": self.rank}
        return dims | {"w": self.kernel, "wm": self.kernel - 1}


@dataclass(frozen=True)
class ShortConv(Written):
    """LFM2's mixer: a short convolution over a gated input, gated again on its way out."""

    width: int
    kernel: int
    bias: bool = False

    @property
    def dims(self) -> dict[str, int]:
        return {"d1": self.width, "w": self.kernel, "wm": self.kernel - 1}
