"""The number formats kernels come in: what the matrix unit multiplies, and the bytes of weights and activations.

A format of kernels says more than a dtype of elements: `fp8_block` is fp8 with a scale for every 128x128 block of weights,
`mxfp4_bf16` is 4-bit weights unpacked on the fly and multiplied with bf16 activations.
"""

from dataclasses import dataclass

from dragonscale.errors import unknown


@dataclass(frozen=True)
class Format:
    """What is multiplied (`compute`, a dtype of the chip's file), bytes of a weight and of an activation, and the format
    whose measured constants stand in where a profile has none for this one."""

    compute: str
    weight: float
    activation: float
    like: str = ""


FORMATS: dict[str, Format] = {
    "bf16": Format("bf16", 2, 2),
    "fp16": Format("fp16", 2, 2, "bf16"),
    "fp32": Format("fp32", 4, 4, "bf16"),
    "tf32": Format("tf32", 4, 4, "bf16"),
    "fp8": Format("fp8", 1, 1, "bf16"),
    "int8": Format("int8", 1, 1, "fp8"),
    "fp8_block": Format("fp8", 1, 1 + 4 / 128, "fp8"),
    "mxfp8": Format("fp8", 1 + 1 / 32, 1 + 1 / 32, "fp8_block"),
    "nvfp4": Format("fp4", 0.5 + 1 / 16, 0.5 + 1 / 16, "fp8"),
    "fp4": Format("fp4", 0.5, 0.5, "nvfp4"),
    "mxfp4": Format("fp4", 0.5 + 1 / 32, 0.5 + 1 / 32, "nvfp4"),
    "mxfp4_bf16": Format("bf16", 0.5 + 1 / 32, 2, "bf16"),
    "int4_bf16": Format("bf16", 0.5 + 1 / 64, 2, "mxfp4_bf16"),
    "fp8_bf16": Format("bf16", 1, 2, "bf16"),
    "int8_bf16": Format("bf16", 1, 2, "fp8_bf16"),
}
"""Every format by name. Names such as `int8_bf16` are weights_activations; scales are counted with their elements."""

_SPELLINGS = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "f16": "fp16", "float32": "fp32", "f32": "fp32", "f8": "fp8",
    "fp8_e4m3": "fp8", "float8_e4m3fn": "fp8", "s8": "int8", "int4": "int4_bf16", "w4a16_mxfp4": "mxfp4_bf16",
    "w4a16": "int4_bf16", "int4_wo": "int4_bf16", "int8_wo": "int8_bf16", "w8a16": "int8_bf16", "w4a4_nvfp4": "nvfp4",
}  # fmt: skip


def format_name(dtype: str) -> str:
    """The format that a spelling means.

    >>> format_name("bfloat16"), format_name("w4a16_mxfp4")
    ('bf16', 'mxfp4_bf16')
    """
    name = dtype.strip().lower()
    name = _SPELLINGS.get(name, name)
    if name not in FORMATS:
        raise unknown("number format", dtype, FORMATS)
    return name


def stand_ins(name: str) -> list[str]:
    """A format and those whose constants stand in for it, nearest first.

    >>> stand_ins("mxfp4")
    ['mxfp4', 'nvfp4', 'fp8', 'bf16']
    """
    found = [name]
    while FORMATS[found[-1]].like:
        found.append(FORMATS[found[-1]].like)
    return found
