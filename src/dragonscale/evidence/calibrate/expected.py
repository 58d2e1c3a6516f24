"""What a profile expects of measured cases: the formulas of `kernels/`, as these programs use them.

Operands come from memory (`cold`), activations are in their format already, nothing is written into a paged cache.
"""

from collections.abc import Sequence
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.cases import BenchCase
from dragonscale.evidence.calibrate.records import TimedCase
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels import (
    attention_seconds,
    decode_attention_seconds,
    grouped_matmul_seconds,
    matmul_seconds,
    memory_seconds,
)
from dragonscale.physics.kernels.attention import attention_backward_seconds
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.profile import KernelProfile

TABLES = {
    "matmul": "matmul",
    "matmul_dx": "matmul",
    "matmul_dw": "matmul",
    "attention": "attention",
    "attention_both": "attention",
    "decode": "decode",
    "experts": "grouped",
    "copy": "stream",
    "read": "stream",
    "product": "stream",
}
"""The kind of table that a kind of case is expected by."""
RAGGED = "ragged_dot"
"""The name of JAX's own grouped matmuls among the implementations of experts."""


def expected_seconds(rows: Sequence[TimedCase], profile: KernelProfile) -> Any:
    """Seconds that a profile expects for each row; all of one kind and format."""
    import numpy

    kind, dtype = rows[0].kind, rows[0].dtype
    sizes: list[Any] = [numpy.array(column, dtype=float) for column in zip(*(row.sizes for row in rows), strict=True)]
    common: dict[str, Any] = {"dtype": dtype, "profile": profile}
    if kind.startswith("matmul"):
        return matmul_seconds(*sizes, **common, out_bytes=4 if dtype in ("fp32", "int8") else 2)
    if kind == "decode":
        return decode_attention_seconds(*sizes, **common)
    if kind.startswith("attention"):
        batch, tokens, *heads = sizes
        forward = attention_seconds(batch, tokens, tokens, *heads, **common)
        if kind == "attention":
            return forward
        return forward + attention_backward_seconds(batch, tokens, tokens, *heads, **common)
    if kind == "experts":
        known = profile.grouped.of(dtype)
        return grouped_matmul_seconds(*sizes, **common, implementation=RAGGED if RAGGED in known else "")
    if kind in ("copy", "read", "product"):
        return memory_seconds(sizes[0], profile)
    raise InputError(f"No profile of kernels says how long a {kind} takes.")


def has_rate(case: BenchCase | TimedCase, chip: Chip) -> bool:
    """Whether a profile of a chip can say how long a case takes: its matrix unit has a rate for the format, which most
    have not for fp32. What only moves bytes needs none."""
    return TABLES.get(case.kind) == "stream" or chip.rate(FORMATS[case.dtype].compute) is not None


def by_kind(rows: Sequence[TimedCase]) -> dict[tuple[str, str], list[TimedCase]]:
    """Rows that can be predicted in one call."""
    found: dict[tuple[str, str], list[TimedCase]] = {}
    for row in rows:
        found.setdefault((row.kind, row.dtype), []).append(row)
    return found


def log_errors(rows: Sequence[TimedCase], profile: KernelProfile) -> Any:
    """log(expected / measured) of each row, kind by kind."""
    import numpy

    found = [
        numpy.log(numpy.maximum(expected_seconds(alike, profile), 1e-12)) - numpy.log([row.seconds for row in alike])
        for alike in by_kind(rows).values()
    ]
    return numpy.concatenate(found) if found else numpy.zeros(0)


def shape_of(row: TimedCase) -> tuple[object, ...]:
    """What is held out together: the weights of a matmul whatever its rows, the heads of attention, a mixture."""
    sizes = row.sizes
    if row.kind == "matmul_dw":
        return ("matmul", *sorted(sizes[:2]))
    if row.kind.startswith("matmul"):
        return ("matmul", *sorted(sizes[1:]))
    if row.kind.startswith("attention") or row.kind == "decode":
        return (row.kind.split("_")[0], *sizes[2:])
    return (row.kind, *sizes[1:]) if row.kind == "experts" else (row.kind, *sizes)
