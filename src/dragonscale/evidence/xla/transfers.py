"""Collectives written as a pair of `send` and `recv`.

Between slices of TPUs, the network's own runtime does the collective: the compiler hands the array over with a `send`
and takes the result with a `recv`, and says in attributes what kind it is and who takes part (`{1,2}x{0:3}`: devices 0
to 3 of slices 1 and 2, each with its namesakes). On GPUs a permute may be cut into a `send` and a `recv` that carry its
source-target pairs. A transfer to the host is no collective.

>>> slice_groups("{1,2}x{0:1}")
((0, 2), (1, 3))

A permute names its pairs, slices counted in hundred thousands.

>>> slice_pairs("{{100000->200000},{200001->100001}}")
((0, 2), (3, 1))
"""

import re
from dataclasses import dataclass

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.hlo_text import Instruction
from dragonscale.evidence.xla.replica_groups import Groups, source_target_pairs

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
    slices, devices = (len(_numbers(match[name])) for name in ("slices", "devices"))
    return tuple(tuple(place * devices + position for place in range(slices)) for position in range(devices))


def slice_pairs(target: str) -> tuple[tuple[int, int], ...]:
    """Who sends to whom between slices, as positions in all slices one after another."""
    pairs = [(int(source), int(to)) for source, to in re.findall(r"\{(\d+)->(\d+)\}", target)]
    each = 1 + max(device % _SLICE for pair in pairs for device in pair)  # devices of one slice

    def position(device: int) -> int:
        return (device // _SLICE - 1) * each + device % _SLICE

    return tuple((position(source), position(to)) for source, to in pairs)


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        found += range(int(first), int(last or first) + 1)
    return found
