"""The memory of a compiled program, and what the compiler says when it does not fit.

>>> ProgramMemory.of({"argument_size_in_bytes": 10, "peak_memory_in_bytes": 17}).peak_bytes
17

A TPU program that needs too much is not compiled; the message says how much was asked and names the largest buffers. If
a single buffer is larger than the memory, only that buffer is named; if the temporaries alone are, only their sum.

>>> oom = parse_oom("RESOURCE_EXHAUSTED: ... Used 18.22G of 15.75G hbm. Exceeded hbm capacity by 2.47G.")
>>> [round(bytes / 2**30, 2) for bytes in (oom.asked_bytes, oom.capacity_bytes, oom.excess_bytes)]
[18.22, 15.75, 2.47]
>>> parse_oom("INVALID_ARGUMENT: something else") is None
True
"""

import re
from collections.abc import Mapping

import msgspec

_HELD = ("argument_size", "output_size", "alias_size", "temp_size", "peak_memory", "generated_code_size")
DEVICE = tuple(f"{what}_in_bytes" for what in _HELD)
HOST = tuple(f"host_{what}_size_in_bytes" for what in ("argument", "output", "temp"))
PEAK = "peak_memory_in_bytes"
"""JAX's names, in `memory_analysis()`, of the fields below."""


class ProgramMemory(msgspec.Struct, frozen=True):
    """Bytes on each device. `outputs` holds the `aliased` ones too, which lie in arguments; `peak` counts them once."""

    arguments_bytes: int = 0
    outputs_bytes: int = 0
    aliased_bytes: int = 0
    temp_bytes: int = 0
    peak_bytes: int = 0
    code_bytes: int = 0
    host_arguments_bytes: int = 0
    host_outputs_bytes: int = 0
    host_temp_bytes: int = 0

    @property
    def host_bytes(self) -> int:
        """What lies in the host's memory at the peak; what is handed back lies where it came in."""
        return self.host_arguments_bytes + self.host_temp_bytes

    @classmethod
    def of(cls, analysis: Mapping[str, int]) -> "ProgramMemory":
        """From the numbers of JAX's `memory_analysis()`, by its names. Its peak counts arguments in the host's memory,
        too (XLA 0.10's, for GPUs and TPUs alike), but no temporaries there."""
        found = {name: int(analysis.get(name, 0)) for name in (*DEVICE, *HOST)}
        found[PEAK] = max(found[PEAK] - found[HOST[0]], 0)
        return cls(*found.values())


class Buffer(msgspec.Struct, frozen=True):
    """One buffer of a program that did not fit: what it takes, without padding too where the compiler says."""

    size_bytes: float
    unpadded_bytes: float | None = None
    shape: str = ""
    op_name: str = ""
    label: str = ""


class OutOfMemory(msgspec.Struct, frozen=True):
    """How much was asked for and there is; `covers` says for what: `everything`, the `temporaries`, or `one buffer`."""

    asked_bytes: float
    capacity_bytes: float
    excess_bytes: float
    covers: str = "everything"
    buffers: tuple[Buffer, ...] = ()


_SIZE = r"([\d.]+)([KMGT]?)i?B?\b"
_USED = re.compile(rf"Used {_SIZE} of {_SIZE} (\w+)\. Exceeded \w+ capacity by {_SIZE}")
_TEMPORARIES = re.compile(rf"memory required for HLO temporaries \({_SIZE}\) exceeds available \w+ \({_SIZE}\)")
_SINGLE = re.compile(r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\)(?P<rest>.*)", re.DOTALL)
_ITEM = re.compile(rf"^\s*\d+\. Size: {_SIZE}(?P<rest>.*?)(?=^\s*\d+\. Size: |\Z)", re.DOTALL | re.MULTILINE)
_UNPADDED = re.compile(rf"Unpadded size: {_SIZE}")
_ABOUT = (r"Shape: (\S+)", r'op_name="((?:[^"\\]|\\.)*)"', r"XLA label: (.+?)(?:\s{2,}|\n|$)")
_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def parse_oom(text: str) -> OutOfMemory | None:
    """What a compiler's message about memory says, or None where the message is about something else."""
    if used := _USED.search(text):
        asked, capacity = _bytes(used[1], used[2]), _bytes(used[3], used[4])
        buffers = tuple(_buffer(item) for item in _ITEM.finditer(text))
        return OutOfMemory(asked, capacity, _bytes(used[6], used[7]), buffers=buffers)
    if single := _SINGLE.search(text):
        asked, capacity = float(single[1]), float(single[2])
        rest = single["rest"]
        buffer = Buffer(asked, None, _first(r"shape = '([^']*)'", rest), "", _first(r"tag = '([^']*)'", rest))
        return OutOfMemory(asked, capacity, asked - capacity, "one buffer", (buffer,))
    if temporaries := _TEMPORARIES.search(text):
        asked, capacity = _bytes(temporaries[1], temporaries[2]), _bytes(temporaries[3], temporaries[4])
        return OutOfMemory(asked, capacity, asked - capacity, "temporaries")
    return None


def _bytes(number: str, unit: str) -> float:
    return float(number) * 2.0 ** _POWERS[unit]


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1].strip() if match else ""


def _buffer(item: re.Match[str]) -> Buffer:
    rest = item["rest"]
    unpadded = _UNPADDED.search(rest)
    sizes = _bytes(item[1], item[2]), _bytes(unpadded[1], unpadded[2]) if unpadded else None
    return Buffer(*sizes, *(_first(pattern, rest) for pattern in _ABOUT))
