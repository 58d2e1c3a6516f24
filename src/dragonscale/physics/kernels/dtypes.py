"""The number formats of kernels: what the matrix unit multiplies, and the bytes of weights and activations.

A format of kernels says more than a dtype of elements: `fp8_block` is fp8 with a scale for every 128x128 block of
weights, `mxfp4_bf16` is 4-bit weights unpacked on the fly and multiplied with bf16 activations.
"""

from dataclasses import dataclass

from dragonscale.errors import unknown
from dragonscale.physics.stored_formats import BLOCKS, GROUPS
from dragonscale.tables import beside


@dataclass(frozen=True)
class Format:
    """The dtype that is multiplied (`compute`, as the chip's file names it), bytes of a weight and of an activation,
    and the format whose measured constants stand in where a profile has none for this one."""

    compute: str
    weight: float
    activation: float
    like: str = ""


_FILE = beside(__file__, "formats.toml")
FORMATS = {name: Format(**row) for name, row in _FILE["formats"].items()}
UNPACKED = _FILE["unpacked"]["compute"]
"""What kernels multiply weights in that a file stores in blocks: fp16, or int8 with activations in blocks of 8 bits."""


def unpacked_name(kind: str, compute: str) -> str:
    """The name of the kernels that unpack weights of a kind of block (`q4_k`) and multiply them.

    >>> unpacked_name("q4_k", "bf16"), unpacked_name("q4_k", "int8")
    ('q4_k_fp16', 'q4_k_int8')
    """
    return f"{kind}_{'fp16' if compute == 'bf16' else compute}"


def _unpacking_kernels() -> dict[str, Format]:
    """Kernels for every kind of stored weights; constants that a profile lacks are those of the kind it is `like`."""
    kernels: dict[str, Format] = {}
    likes = _FILE["unpacked"]["like"]
    sizes = {**BLOCKS, **GROUPS, "exl2": (1, 0.5), "exl3": (1, 0.5)}
    for kind, (elements, size) in sizes.items():
        for compute, activation in UNPACKED.items():
            nearest = next((like for prefix, like in likes.items() if kind.startswith(prefix)), "q4_0")
            like = unpacked_name(nearest, compute) if nearest != kind else "int4_bf16"
            kernels[unpacked_name(kind, compute)] = Format(compute, size / elements, activation, like)
    return kernels


UNPACKING = _unpacking_kernels()
"""Kernels that unpack stored weights, by name."""
FORMATS |= UNPACKING


def format_name(dtype: str) -> str:
    """The format that a spelling means.

    >>> format_name("bfloat16"), format_name("w4a16_mxfp4")
    ('bf16', 'mxfp4_bf16')
    """
    name = dtype.strip().lower()
    name = _FILE["spellings"].get(name, name)
    if name not in FORMATS:
        raise unknown("number format", dtype, FORMATS)
    return name


def stand_ins(name: str) -> list[str]:
    """A format and those whose constants stand in for it, nearest first.

    >>> stand_ins("mxfp4")
    ['mxfp4', 'nvfp4', 'fp8', 'bf16']
    """
    names = [name]
    while FORMATS[names[-1]].like:
        names.append(FORMATS[names[-1]].like)
    return names
