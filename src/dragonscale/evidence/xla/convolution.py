"""FLOPs of a convolution, which is also how XLA's TPU compiler writes every matmul.

A matmul `[b,f] · [i,o]` is a convolution without spatial dims (`dim_labels=bf_io->bf`). A batched matmul has its batch
dims as spatial ones, with padding and dilation chosen so that each batch meets only itself: of the positions that the
window visits most fall on padding or between the elements, and a count that ignores this is too large by the batch. So
only positions that meet an element are counted, as XLA's own cost analysis does.

>>> from dragonscale.evidence.xla.shapes import read_shapes
>>> lhs, rhs, out = read_shapes("bf16[64,256] bf16[256,512] bf16[64,512]")
>>> convolution_flops(lhs, rhs, out, "bf_io->bf", "") == 2 * 64 * 256 * 512
True
>>> lhs, rhs, out = read_shapes("bf16[16,64,32] bf16[16,32,48] bf16[16,64,48]")
>>> window = "{size=16 stride=15 lhs_dilate=16}"
>>> convolution_flops(lhs, rhs, out, "0bf_0io->0bf", window) == 2 * 16 * 64 * 32 * 48
True
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.shapes import Shape

MOST_POSITIONS = 1 << 28
"""Places of a window times outputs along one dim, each looked at once."""
_LABELS = re.compile(r"(?P<lhs>[\w?]+)_(?P<rhs>[\w?]+)->(?P<out>[\w?]+)")


_WINDOW = {"size": "size", "stride": "stride", "low": "pad", "lhs_dilate": "lhs_dilate", "rhs_dilate": "rhs_dilate"}
"""Our names for the fields of a window, and HLO's."""


@dataclass(frozen=True)
class Window:
    """How one spatial dim is walked."""

    size: int = 1
    stride: int = 1
    low: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1


def convolution_flops(lhs: Shape, rhs: Shape, out: Shape, labels: str, window: str) -> float:
    """Multiplications and additions of one convolution (feature and batch groups are in the shapes already)."""
    match = _LABELS.fullmatch(labels)
    if match is None:
        raise InputError(f"The convolution's dim labels {shorten(labels)} are in no form this reader knows.")
    sizes = {
        (side, label): size
        for side, shape in (("lhs", lhs), ("rhs", rhs), ("out", out))
        for label, size in zip(match[side], shape.dims, strict=True)
    }
    spatial = sorted(label for label in match["out"] if label.isdigit())
    walks = _windows(window, len(spatial))
    pairs = zip(spatial, walks, strict=True)
    positions = math.prod(valid_positions(sizes["lhs", each], sizes["out", each], walk) for each, walk in pairs)
    # `i` is what one output feature sums over: with feature groups it is already a group's share.
    return 2.0 * sizes["out", "b"] * sizes["out", "f"] * sizes["rhs", "i"] * positions


def _windows(text: str, count: int) -> list[Window]:
    """The walks of each spatial dim from `{size=3x3 pad=1_1x1_1 ...}`."""
    fields = dict(part.split("=") for part in text.strip("{} ").split() if "=" in part)
    columns = {name: value.split("x") for name, value in fields.items()}
    if any(len(values) != count for values in columns.values()) or (count and "size" not in columns):
        raise InputError(f"The convolution's window {shorten(text)} does not have {count} dims.")

    def walk(place: int) -> Window:
        numbers = {name: int(values[place].split("_")[0]) for name, values in columns.items()}
        return Window(**{own: numbers[name] for own, name in _WINDOW.items() if name in numbers})

    return [walk(place) for place in range(count)]


@lru_cache(maxsize=4096)
def valid_positions(size: int, outputs: int, walk: Window) -> int:
    """Pairs of an output and a place in the window that meet an element of the operand, not padding or a gap.

    >>> valid_positions(size=4, outputs=4, walk=Window(size=3, low=1))
    10
    """
    if walk.size * outputs > MOST_POSITIONS or min(walk.lhs_dilate, walk.rhs_dilate, walk.size) < 1:
        raise InputError(
            f"A convolution's window of {walk.size:,} over {outputs:,} outputs is more than this reader counts."
        )
    starts = np.arange(outputs, dtype=np.int64) * walk.stride - walk.low
    last = (size - 1) * walk.lhs_dilate
    found = 0
    for place in range(walk.size):
        at = starts + place * walk.rhs_dilate
        found += int(((at >= 0) & (at <= last) & (at % walk.lhs_dilate == 0)).sum())
    return found
