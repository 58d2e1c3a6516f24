"""Tensors of checkpoints that keep numbers in fewer bits with scales beside them, as plain numbers.

Two formats in use: FP8 in blocks of 128 x 128 with a scale each, in a tensor named `…_scale_inv` (DeepSeek-V3), and
MXFP4, 32 numbers in 16 bytes with an exponent each, in tensors named `…_blocks` and `…_scales` (gpt-oss).
"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy

from dragonscale.errors import InputError, shorten

FP4 = numpy.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], numpy.float32)
"""The numbers of E2M1 without their sign."""
BLOCK = 128
"""Rows and columns that share a scale in FP8."""


def as_numbers(tensors: Mapping[str, Any], name: str) -> numpy.ndarray:
    """A tensor, with its scales multiplied in if it has some."""
    found = numpy.asarray(tensors[name])
    if name.endswith("_blocks"):
        return _mxfp4(found, numpy.asarray(tensors[name.removesuffix("_blocks") + "_scales"]))
    if f"{name}_scale_inv" in tensors:
        return _fp8_blocks(found, numpy.asarray(tensors[f"{name}_scale_inv"]))
    if found.dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, numpy.uint8):
        raise InputError(
            f"The checkpoint's {shorten(name, 160)} is in {found.dtype} with scales that are not known here."
        )
    return found


def _fp8_blocks(found: numpy.ndarray, scales: numpy.ndarray) -> numpy.ndarray:
    wide = scales.repeat(BLOCK, 0)[: found.shape[0]].repeat(BLOCK, 1)[:, : found.shape[1]]
    return (found.astype(numpy.float32) * wide).astype(ml_dtypes.bfloat16)


def _mxfp4(blocks: numpy.ndarray, scales: numpy.ndarray) -> numpy.ndarray:
    """[…, groups, 16] bytes, the lower half of each first, to […, groups·32] numbers."""
    table = numpy.concatenate([FP4, -FP4])
    pairs = numpy.stack([table[blocks & 15], table[blocks >> 4]], -1).reshape(*blocks.shape[:-1], -1)
    numbers = numpy.ldexp(pairs, scales.astype(numpy.int32)[..., None] - 127)
    return numbers.reshape(*blocks.shape[:-2], -1).astype(ml_dtypes.bfloat16)
