"""Steps that were timed: a line of JSON for each case, with what a profile of one more step says of its kernels."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.calibrate.stack_cases import Case, cases

_MATMUL = re.compile(r"nvjet|gemm|cutlass|sm\d+_xmma|.*gemm|cublas|.*splitK", re.IGNORECASE)
_FLASH = re.compile(r"cudnn.*sdpa|.*fmha|.*cudnn::fusion", re.IGNORECASE)


@dataclass(frozen=True)
class MeasuredCase:
    """Seconds of a case, and of its matmuls and its flash attention where the profile tells them apart (0: it does not)."""

    seconds: float
    matmul: float = 0.0
    attention: float = 0.0


def kernel_kind(name: str) -> str:
    """`matmul`, `attention` or `other`, by the name of a kernel.

    >>> [
    ...     kernel_kind(name)
    ...     for name in ("nvjet_sm90_tst_128x256", "cudnn_generated_fort_native_sdpa_sm90", "loop_add_fusion_6")
    ... ]
    ['matmul', 'attention', 'other']
    """
    return "attention" if _FLASH.match(name) else "matmul" if _MATMUL.match(name) else "other"


def parts_of(kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of kernels by their kind."""
    found = {"matmul": 0.0, "attention": 0.0, "other": 0.0}
    for name, seconds in kernels:
        found[kernel_kind(name)] += seconds
    return found


def read_rows(path: Path) -> dict[Case, MeasuredCase]:
    """The rows of a file that are of known cases; of a case that was timed twice the last. Failures are left out."""
    by_key = {case.key: case for case in cases()}
    found: dict[Case, MeasuredCase] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row: Mapping[str, Any] = json.loads(line)
            if row["key"] in by_key and "s" in row:
                parts = row.get("parts") or {}
                found[by_key[row["key"]]] = MeasuredCase(
                    float(row["s"]), float(parts.get("matmul", 0.0)), float(parts.get("attention", 0.0))
                )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"Line {number} of {shorten(str(path))} is no row of steps that were timed.") from None
    return found
