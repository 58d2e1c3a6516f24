"""Time that computes nothing new: copies that only change a layout or a dtype, and the padding of tiles.

A TPU keeps arrays in whole tiles, so `bf16[8,100]` moves as many bytes as `bf16[8,128]`. An op that is bound by memory loses the padded
share of its bytes; one that is bound by its matmul is not counted, as its tiles are those of the matrix unit.
"""

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.per_op import ChipRoof, OpTotals
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import WasteLine
from dragonscale.evidence.profiles.roles import OpRole

COPIED, PADDING = "layout copies, casts and transposes", "padding of tiles"
_SMALL = 1e-4
"""Ops with less than this share of the step are not looked at for padding."""
_LONGEST = 20_000
"""Characters of an instruction that are read."""


def wasted(
    recording: Recording, totals: OpTotals, roles: list[OpRole], roof: ChipRoof, step_s: float
) -> tuple[WasteLine, ...]:
    """Layout copies and padding of a step, in seconds."""
    copies = [one for one in totals.ran.tolist() if roles[one].kind == "copy" and totals.exposed[one] > 0]
    lines = []
    if copies:
        seconds = float(totals.exposed[copies].sum())
        lines.append(
            WasteLine(
                "layout copies, casts and transposes", seconds, _share(seconds, step_s), _names(recording, copies)
            )
        )
    padded: dict[int, float] = {}
    for one in totals.ran.tolist():
        if (
            totals.exposed[one] < _SMALL * step_s
            or not recording.ops[one].text
            or roof.bound(roles[one])[1] == "compute"
        ):
            continue
        share = padding_share(recording.ops[one].text)
        if share > 0.01:
            padded[one] = share * float(totals.exposed[one])
    if padded:
        seconds = float(np.sum(list(padded.values())))
        order = sorted(padded, key=lambda one: -padded[one])
        lines.append(WasteLine(PADDING, seconds, _share(seconds, step_s), _names(recording, order)))
    return tuple(sorted(lines, key=lambda one: -one.seconds))


def padding_share(text: str) -> float:
    """The part of an instruction's bytes of HBM that is padding.

    >>> round(padding_share("%c = bf16[64,100]{1,0:T(8,128)(2,1)} copy(bf16[64,100]{1,0:T(8,128)(2,1)} %p)"), 2)
    0.22
    """
    from dragonscale.evidence.xla.op_work import work_of_text

    try:
        work = work_of_text(text[:_LONGEST], "tpu")
    except (InputError, ValueError, KeyError, IndexError):
        return 0.0
    return 1 - work.hbm_bytes / work.moved_bytes if work.moved_bytes else 0.0


def _names(recording: Recording, some: list[int]) -> tuple[str, ...]:
    return tuple(recording.ops[one].name for one in some[:5])


def _share(seconds: float, step_s: float) -> float:
    return seconds / step_s if step_s else 0.0
