"""Local shapes back to global: how many ways each dim of an array is split, from the sharding written beside it.

A compiled program shows what one device holds; its parameters keep the annotation that the partitioner read.
`devices=[4,2]<=[8]` cuts the first dim in 4 and the second in 2; with `last_tile_dim_replicate` the last number counts
the devices that hold the same piece.

>>> split = read_sharding("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}")
>>> split.ways, split.copies, split.whole((1024, 8192))
((2, 1), 4, (2048, 8192))
>>> read_sharding("{replicated}").whole((8, 4)), read_sharding("{manual}").whole((8, 4)) is None
((8, 4), True)
"""

import math
import re
from dataclasses import dataclass

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.hlo_text import Instruction, Module

_DEVICES = re.compile(r"devices=\[([\d,]{1,400})\]")
_SUBGROUPS = re.compile(r"last_tile_dims=\{([^}]*)\}")


@dataclass(frozen=True)
class DimSplit:
    """Ways that each dim is split, and how many devices hold the same piece; `what` it is where it is not in tiles."""

    what: str
    ways: tuple[int, ...] = ()
    copies: int = 1

    def whole(self, local: tuple[int, ...]) -> tuple[int, ...] | None:
        """The global sizes of what one device holds (a little larger where the last piece is padded), or None if
        nothing says."""
        if self.what == "replicated":
            return local
        if self.what != "tiled" or len(self.ways) != len(local):
            return None
        return tuple(size * ways for size, ways in zip(local, self.ways, strict=True))

    def local(self, whole: tuple[int, ...]) -> tuple[int, ...] | None:
        """The sizes that one device holds of a global array."""
        if self.what == "replicated":
            return whole
        if self.what != "tiled" or len(self.ways) != len(whole):
            return None
        return tuple(-(-size // ways) for size, ways in zip(whole, self.ways, strict=True))


def read_sharding(text: str) -> DimSplit:
    """The sharding of one array, as HLO writes it."""
    plain = text.strip().removeprefix("{").removesuffix("}").strip()
    devices = _DEVICES.search(plain)
    if devices is None:
        for what in ("replicated", "manual", "maximal", "unknown"):
            if plain.startswith(what):
                return DimSplit("replicated" if what == "replicated" else what)
        raise InputError(f"The sharding {shorten(text, 200)} is in no form this reader knows.")
    ways = [int(part[:9]) for part in devices[1].split(",") if part]
    if not ways or not 1 <= math.prod(ways) <= 1 << 30:
        raise InputError(f"The sharding {shorten(text, 200)} splits over no devices, or over too many.")
    groups = _SUBGROUPS.search(plain)
    extra = len(groups[1].split(",")) if groups else int("last_tile_dim_replicate" in plain)
    dims = ways[: len(ways) - extra]
    return DimSplit("tiled", tuple(dims), math.prod(ways[len(ways) - extra :]) if extra else 1)


def sharding_of(instruction: Instruction) -> DimSplit | None:
    """The sharding of an instruction with one array, or None where it has none."""
    text = instruction.attribute("sharding")
    if not text or text.startswith("{{"):
        return None
    try:
        return read_sharding(text)
    except InputError:
        return None


class ParameterRow(msgspec.Struct):
    """An argument: what a device holds, and the whole where the text says how it is split."""

    name: str
    dtype: str
    local: list[int]
    whole: list[int] | None
    ways: list[int]
    copies: int


def global_parameters(module: Module, partitioned: bool) -> list[ParameterRow]:
    """The entry's arguments of one array each, in order. Before a program is `partitioned` its shapes are global."""
    rows: list[ParameterRow] = []
    for each in module.entry.parameters.values():
        if len(each.shapes) != 1:
            continue
        (shape,), split = each.shapes, sharding_of(each)
        local: tuple[int, ...] | None = shape.dims
        whole = split.whole(shape.dims) if split else None
        if not partitioned:
            local, whole = split.local(shape.dims) if split else shape.dims, shape.dims
        name = each.op_name.replace("\\'", "'") or each.name
        ways, copies = (split.ways, split.copies) if split else ((), 1)
        sizes = list(local or shape.dims), list(whole) if whole else None, list(ways)
        rows.append(ParameterRow(name, shape.dtype, *sizes, copies))
    return rows
