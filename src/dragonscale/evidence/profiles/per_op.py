"""Events added up by op: time, times, FLOPs and bytes of each op in a step, and the roofline it is held against."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.halves import counted_events
from dragonscale.evidence.profiles.parts import TRAVELS, DeviceWork
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import OpRole

if TYPE_CHECKING:
    from dragonscale.physics.hardware import Chip

MATMULS = ("matmul", "grouped matmul", "attention", "convolution")
LAUNCH = 6e-6
"""Seconds below which a kernel is bound by starting it rather than by what it does."""


@dataclass(frozen=True)
class OpTotals:
    """Columns over the ops of a recording: seconds and times of a step; `works` are times that count for FLOPs and
    bytes, where the start and the end of one transfer are events of their own."""

    seconds: np.ndarray
    exposed: np.ndarray
    times: np.ndarray
    works: np.ndarray

    @property
    def ran(self) -> np.ndarray:
        """The ops that ran in a step, the longest first."""
        some = np.flatnonzero((self.seconds > 0) | (self.times > 0))
        return some[np.argsort(-self.seconds[some], kind="stable")]


def op_totals(recording: Recording, work: DeviceWork, roles: list[OpRole]) -> OpTotals:
    """A device's work by op, of a mean step."""
    steps, size = max(1, len(work.windows)), len(recording.ops)
    ops = recording.events.op[work.pieces.event]
    seconds = np.bincount(ops, work.seconds, size) / steps / 1e9
    exposed = np.bincount(ops, work.exposed, size) / steps / 1e9
    events = work.pieces.events(len(recording.events.start))
    start = recording.events.start[events]
    step = np.searchsorted(work.windows[:, 0], start, side="right") - 1
    inside = (step >= 0) & (start < work.windows[np.maximum(step, 0), 1])
    events = events[inside]
    counted = counted_events(recording, roles, events)
    times, works = (
        np.bincount(recording.events.op[some], minlength=size) / steps for some in (events, events[counted])
    )
    return OpTotals(seconds, exposed, times, works)


def causal_ops(recording: Recording) -> frozenset[int]:
    """Attention ops whose program, or whose operator's arguments, say that their mask is causal."""
    return frozenset(number for number, op in enumerate(recording.ops) if op.causal or '"CAUSAL"' in op.text)


@dataclass(frozen=True)
class ChipRoof:
    """What a chip does at best: FLOP/s by dtype and bytes of HBM a second. `causal` are the numbers of attention ops
    that are known to skip the half of their scores that a causal mask hides: FLOPs are told in full, as XLA counts
    them, and half of them bound the op."""

    chip: "Chip | None"
    causal: frozenset[int] = frozenset()

    def peak(self, dtype: str) -> float | None:
        """FLOP/s of matmuls; None where the chip or its rate is not known."""
        if self.chip is None:
            return None
        try:
            return self.chip.peak(dtype or "bf16")
        except InputError:
            return None

    def bound(self, role: OpRole, number: int = -1) -> tuple[float | None, str]:
        """Seconds of one run of an op at best, and what bounds it; `number` is its place in the recording."""
        if self.chip is None or role.kind in (*TRAVELS, "host"):
            return None, ""
        peak = self.peak(role.dtype) if role.kind in MATMULS else None
        done = 0.5 if number in self.causal else 1.0
        compute = done * role.flops / peak if role.flops and peak else 0.0
        memory = role.hbm_bytes / self.chip.bandwidth("hbm") if role.hbm_bytes else 0.0
        if not compute and not memory:
            return None, ""
        return max(compute, memory), "compute" if compute >= memory else "memory"


def limited_by(bound: str, fraction: float | None, each: float, kind: str) -> str:
    """What holds an op back: its roof where it comes near, else the launch where it is short."""
    if kind in TRAVELS:
        return "network"
    if kind == "host":
        return "host link"
    if each and each < LAUNCH and (fraction is None or fraction < 0.3):
        return "launch"
    return bound
