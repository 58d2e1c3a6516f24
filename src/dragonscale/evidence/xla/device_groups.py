"""Which devices take part in a collective, in every way that HLO writes it.

>>> replica_groups("{{0,1},{2,3}}")
((0, 1), (2, 3))
>>> replica_groups("[2,2]<=[4]")
((0, 1), (2, 3))
>>> replica_groups("[2,2]<=[2,2]T(1,0)")
((0, 2), (1, 3))
>>> replica_groups("mesh['axis_0'=2,'axis_1'=2] {'axis_0'}")
((0, 2), (1, 3))
>>> replica_groups("mesh['axis_0'=2,'axis_1'=2], device_ids=([2,2]T(1,0)) {'axis_1'}")
((0, 2), (1, 3))

A mesh form may name a part of an axis: `'axis_0':(2)4` is the 4 steps inside every half of the axis.

>>> replica_groups("mesh['axis_0'=4] {'axis_0':(2)2}"), replica_groups("mesh['axis_0'=4] {'axis_0':(1)2}")
(((0, 1), (2, 3)), ((0, 2), (1, 3)))

Collectives written as a pair of `send` and `recv`.

Between slices of TPUs, the network's own runtime does the collective: the compiler hands the array over with a `send`
and takes the result with a `recv`, and says in attributes what kind it is and who takes part (`{1,2}x{0:3}`: devices 0
to 3 of slices 1 and 2, each with its namesakes). On GPUs a permute may be cut into a `send` and a `recv` that carry its
source-target pairs. A transfer to the host is no collective.

>>> slice_groups("{1,2}x{0:1}")
((0, 2), (1, 3))

A permute names its pairs, slices counted in hundred thousands.

>>> slice_pairs("{{100000->200000},{200001->100001}}")
((0, 2), (3, 1))

What the groups of a collective say about the devices: how many work together, how far apart, how many there are at
least, and which mesh axes they run along.

A profile of one device shows local shapes only. A group `{0,16,32,…,112}` is 8 devices with 16 between one and the
next: an axis of 8 with an axis of 16 inside it, so at least 128 devices.

>>> group_shape(((0, 16, 32, 48, 64, 80, 96, 112),))
GroupShape(degree=8, stride=16, groups=1, at_least=128)
>>> group_shape(((0, 1), (2, 3), (4, 5), (6, 7)))
GroupShape(degree=2, stride=1, groups=4, at_least=8)

HLO numbers devices by their position in the mesh, last axis fastest. A group that varies along some axes and is fixed
along all others *spans* those axes. The compiler may also cut an axis: over `X=8` it can form groups of two. So the
axes asked about may be parts: with `X=8` cut into `X1=2, X2=2, X3=2` (major first) such a group spans one of them.

>>> spanned_axes(((0, 1), (2, 3)), {"X": 2, "Y": 2})
('Y',)
>>> spanned_axes(((0, 2), (1, 3)), {"X": 4}) is None
True
>>> spanned_axes(((0, 2), (1, 3)), axis_parts({"X": 4})["X"])
('X1',)
"""

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.hlo_text import Instruction

Groups = tuple[tuple[int, ...], ...]

_NESTED = re.compile(r"\{\s*(?:\{[\d,\s]*\}\s*(?:,\s*)?)*\}")
_ELLIPSIS = re.compile(r",\s*(?:\.\.\.|…)")
"""People who quote a long list of groups write the first ones."""
_IOTA = re.compile(r"\[(?P<shape>[\d,]+)\]<=\[(?P<order>[\d,]+)\](?:T\((?P<transpose>[\d,]+)\))?")
_MESH = re.compile(
    r"mesh\[(?P<axes>[^\]]*)\](?:\s*,\s*device_ids=\((?P<ids>[^()]*(?:\([\d,]*\))?)\))?\s*\{(?P<used>[^}]*)\}"
)
_IDS = re.compile(r"\[(?P<order>[\d,]+)\](?:T\((?P<transpose>[\d,]+)\))?")
_AXIS = re.compile(r"\s*'(?P<name>[^']+)'=(?P<size>\d+)\s*")
_USED = re.compile(r"\s*'(?P<name>[^']+)'(?::\((?P<before>\d+)\)(?P<size>\d+))?\s*")


MOST_DEVICES = 1 << 20
"""More than any system has: a text that counts further is wrong, or written to fill the memory."""


@lru_cache(maxsize=1024)
def replica_groups(text: str) -> Groups:
    """The groups as tuples of positions in the mesh's devices. See the module's examples."""
    try:
        return _read_groups(text.strip())
    except (ValueError, IndexError, KeyError, ZeroDivisionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The replica groups {shorten(text, 200)} do not fit the devices they count.") from None


def _read_groups(text: str) -> Groups:
    text = _ELLIPSIS.sub("", text)
    if _NESTED.fullmatch(text):
        return tuple(_numbers(group) for group in re.findall(r"\{([\d,\s]*)\}", text[1:-1]))
    if iota := _IOTA.fullmatch(text):
        ids = _ordered(_numbers(iota["order"]), iota["transpose"])
        shape = _numbers(iota["shape"])
        return _rows(ids.reshape(math.prod(shape[:-1]), shape[-1]))
    if mesh := _MESH.fullmatch(text):
        return _mesh_groups(mesh)
    raise InputError(f"The replica groups {shorten(text, 200)} are in no form this reader knows.")


@lru_cache(maxsize=1024)
def source_target_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Who sends to whom in a collective-permute.

    >>> source_target_pairs("{{0,1},{1,0}}")
    ((0, 1), (1, 0))
    """
    if not _NESTED.fullmatch(text.strip()):
        raise InputError(f"The source-target pairs {shorten(text, 200)} are in no form this reader knows.")
    pairs = [_numbers(pair) for pair in re.findall(r"\{([\d,\s]+)\}", text.strip()[1:-1])]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(f"The source-target pairs {shorten(text, 200)} are not all of two devices.")
    return tuple((source, target) for source, target in pairs)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part.strip()[:12]) for part in text.split(",") if part.strip())


def _rows(table: np.ndarray) -> Groups:
    return tuple(tuple(int(device) for device in row) for row in table)


def _ordered(shape: tuple[int, ...], transpose: str | None) -> np.ndarray:
    """Device numbers counted through `shape`, then with its dims transposed."""
    if not 1 <= math.prod(shape) <= MOST_DEVICES:
        raise InputError(f"The replica groups count {math.prod(shape):,} devices; there are at most {MOST_DEVICES:,}.")
    ids = np.arange(math.prod(shape)).reshape(shape)
    return ids.transpose(_numbers(transpose)) if transpose else ids


def _mesh_groups(match: re.Match[str]) -> Groups:
    axes = [_AXIS.fullmatch(part) for part in match["axes"].split(",")]
    used = [_USED.fullmatch(part) for part in match["used"].split(",") if part.strip()]
    if not all(axes) or not all(used):
        raise InputError(f"The replica groups {shorten(match[0], 200)} are in no form this reader knows.")
    sizes = {axis["name"]: int(axis["size"]) for axis in axes if axis}
    ids = _device_ids(match["ids"], math.prod(sizes.values()), match[0])
    # Cut every axis that is used in part into (before, size, after), so that a group is a choice of whole dims.
    dims: list[int] = []
    place: dict[tuple[str, int], int] = {}
    parts = {(part["name"], int(part["before"] or 1)): part for part in used if part}
    for name, size in sizes.items():
        done = 1
        for (_, before), part in sorted((key, part) for key, part in parts.items() if key[0] == name):
            width = int(part["size"] or size)
            if before > done:
                dims.append(before // done)
            place[name, before] = len(dims)
            dims.append(width)
            done = before * width
        if done < size:
            dims.append(size // done)
    chosen = [place[key] for key in parts]
    rest = [dim for dim in range(len(dims)) if dim not in chosen]
    table = ids.reshape(dims).transpose([*rest, *chosen])
    return _rows(table.reshape(-1, math.prod(dims[dim] for dim in chosen)))


def _device_ids(text: str | None, count: int, whole: str) -> np.ndarray:
    """The order of a mesh's devices: counted, listed, or counted and transposed."""
    if not 1 <= count <= MOST_DEVICES:
        raise InputError(f"The replica groups count {count:,} devices; there are at most {MOST_DEVICES:,}.")
    if text is None:
        return np.arange(count)
    if iota := _IDS.fullmatch(text.strip()):
        return _ordered(_numbers(iota["order"]), iota["transpose"]).reshape(-1)
    if re.fullmatch(r"[\d,\s]+", text):
        return np.array(_numbers(text))
    raise InputError(f"The replica groups {shorten(whole, 200)} name devices in no form this reader knows.")


_SLICE = 100_000
"""What the network's runtime counts from one slice to the next; the first is 1."""
TRANSFERS = ("send", "recv")
_TYPES = ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL")
_ATTRIBUTE = re.compile(r'(_xla_[\w]+)="((?:[^"\\]|\\.)*)"')
_PAIRS = re.compile(r'_xla_send_recv_source_target_pairs="?(\{[\d{},\s]*\})')
_SLICE_PAIRS = re.compile(r"_xla_megascale_target=(\{(?:\{\d+->\d+\},?)+\})")
_TARGET = re.compile(r"\{(?P<slices>\d+(?:[,:]\d+)*)\}x\{(?P<devices>\d+(?:[,:]\d+)*)\}")


@dataclass(frozen=True)
class Transfer:
    """What a pair of send and recv does: a kind of collective over groups of devices."""

    kind: str
    groups: Groups
    between_slices: bool = False


def read_transfer(half: Instruction) -> Transfer | None:
    """The collective that a `send` or `recv` is half of, or None where it goes to the host."""
    if pairs := _PAIRS.search(half.text):
        return Transfer("permute", source_target_pairs(pairs[1]))
    found = dict(_ATTRIBUTE.findall(half.text))
    kind = found.get("_xla_megascale_transfer_type")
    if kind is None:
        if "is_host_transfer=true" in half.text:
            return None
        raise InputError(f"The transfer {half.name} does not say between which devices it goes.")
    target = found.get("_xla_megascale_target", "")
    if kind == "ONE_TO_ONE" and (pairs := _SLICE_PAIRS.search(half.text)):
        return Transfer("permute", slice_pairs(pairs[1]), between_slices=True)
    if kind not in _TYPES:
        raise InputError(f"The transfer {half.name} is a {kind} to {shorten(target)}, which this reader does not know.")
    return Transfer(kind.lower(), slice_groups(target), between_slices=True)


def slice_groups(target: str) -> Groups:
    """Who exchanges with whom: each device with those of the same number in the other slices, slices
    counted in order."""
    match = _TARGET.fullmatch(target)
    if match is None:
        raise InputError(f"The slices {shorten(target)} of a transfer are in no form this reader knows.")
    slices, devices = (len(_ranged(match[name])) for name in ("slices", "devices"))
    return tuple(tuple(place * devices + position for place in range(slices)) for position in range(devices))


def slice_pairs(target: str) -> tuple[tuple[int, int], ...]:
    """Who sends to whom between slices, as positions in all slices one after another."""
    pairs = [(int(source), int(to)) for source, to in re.findall(r"\{(\d+)->(\d+)\}", target)]
    each = 1 + max(device % _SLICE for pair in pairs for device in pair)  # devices of one slice

    def position(device: int) -> int:
        return (device // _SLICE - 1) * each + device % _SLICE

    return tuple((position(source), position(to)) for source, to in pairs)


def _ranged(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        found += range(int(first), int(last or first) + 1)
    return found


class GroupShape(msgspec.Struct, frozen=True):
    """Devices of a group, the distance from one to the next (None where it varies), how many groups, and the least
    number of devices."""

    degree: int
    stride: int | None
    groups: int
    at_least: int


def group_shape(groups: Groups) -> GroupShape:
    """The shape of a collective's groups; of a permute's pairs, how far each sends."""
    first = groups[0]
    steps = {after - before for before, after in itertools.pairwise(first)}
    stride = steps.pop() if len(steps) == 1 else None
    highest = 1 + max(device for group in groups for device in group)
    whole = abs(stride) * len(first) if stride else highest
    return GroupShape(len(first), stride, len(groups), max(highest, whole))


def least_devices(every: Iterable[Groups]) -> int:
    """Devices that a program has at least, from all its collectives.

    >>> least_devices([((0, 16),), ((0, 1, 2),)])
    96
    """
    shapes = [group_shape(groups) for groups in every if groups]
    return math.lcm(*(shape.at_least for shape in shapes)) if shapes else 1


def axis_parts(axes: dict[str, int]) -> dict[str, dict[str, int]]:
    """The parts of each axis, of prime size, major first, numbered from 1.

    >>> axis_parts({"X": 4, "Y": 3})
    {'X': {'X1': 2, 'X2': 2}, 'Y': {'Y1': 3}}
    """
    return {
        name: {f"{name}{place}": part for place, part in enumerate(_primes(size), 1)} for name, size in axes.items()
    }


def _primes(size: int) -> list[int]:
    parts: list[int] = []
    divisor = 2
    while size > 1:
        while size % divisor == 0:
            parts.append(divisor)
            size //= divisor
        divisor += 1
    return parts


def coordinates(devices: object, axes: dict[str, int]) -> np.ndarray:
    """The coordinate of each device along each axis, axes first."""
    return np.array(np.unravel_index(np.asarray(devices), tuple(axes.values())))


def spanned_axes(groups: Groups, axes: dict[str, int]) -> tuple[str, ...] | None:
    """The axes along which every group runs, in mesh order, or None where the groups are not along whole axes."""
    table = coordinates(groups, axes)
    varies = [bool((each != each[:, :1]).any()) for each in table]
    spanned = tuple(name for name, moving in zip(axes, varies, strict=True) if moving)
    # Groups with distinct members that are fixed along all other axes hold at most this many: full if they hold them
    # all.
    full = math.prod(axes[name] for name in spanned) == len(groups[0])
    still = [each for each, moving in zip(table, varies, strict=True) if not moving]
    return spanned if full and all((each == each[:, :1]).all() for each in still) else None


def moved_axes(pairs: Groups, axes: dict[str, int]) -> tuple[str, ...]:
    """The axes along which some device of a permute sends."""
    table = coordinates(pairs, axes)
    return tuple(name for name, each in zip(axes, table, strict=True) if (each[:, 0] != each[:, 1]).any())
