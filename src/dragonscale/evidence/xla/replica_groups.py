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
"""

import math
import re
from functools import lru_cache

import numpy as np

from dragonscale.errors import InputError, shorten

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
