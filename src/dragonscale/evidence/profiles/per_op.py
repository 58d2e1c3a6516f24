"""Events added up by op: time, times, FLOPs and bytes of each op in a step, and the roofline it is held against."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.completing import counted_events
from dragonscale.evidence.profiles.device_work import TRAVELS, DeviceWork, measure
from dragonscale.evidence.profiles.intervals import union
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.physics.hardware import Chip, Slice

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
    seconds, exposed = (np.bincount(ops, time, size) / steps / 1e9 for time in (work.seconds, work.exposed))
    events = work.pieces.events(len(recording.events.start))
    start = recording.events.start[events]
    step = np.searchsorted(work.windows[:, 0], start, side="right") - 1
    inside = (step >= 0) & (start < work.windows[np.maximum(step, 0), 1])
    events = events[inside]
    counted = counted_events(recording, roles, events)
    ran = (recording.events.op[some] for some in (events, events[counted]))
    return OpTotals(seconds, exposed, *(np.bincount(ops, minlength=size) / steps for ops in ran))


def causal_ops(recording: Recording) -> frozenset[int]:
    """Attention ops whose program, or whose operator's arguments, say that their mask is causal."""
    return frozenset(number for number, op in enumerate(recording.ops) if op.causal or '"CAUSAL"' in op.text)


@dataclass(frozen=True)
class ChipRoof:
    """What a chip does at best: FLOP/s by dtype and bytes of HBM a second. `causal` are the numbers of attention ops
    that are known to skip the half of their scores that a causal mask hides: FLOPs are told in full, as XLA counts
    them, and half of them bound the op."""

    chip: Chip | None
    causal: frozenset[int] = frozenset()

    def peak(self, dtype: str) -> float | None:
        """FLOP/s of matmuls; None where the chip or its rate is not known."""
        try:
            return self.chip.peak(dtype or "bf16") if self.chip is not None else None
        except InputError:
            return None

    def done(self, number: int) -> float:
        """The part of an op's FLOPs that is computed."""
        return 0.5 if number in self.causal else 1.0

    def bound(self, role: OpRole, number: int = -1) -> tuple[float | None, str]:
        """Seconds of one run of an op at best, and what bounds it; `number` is its place in the recording."""
        if self.chip is None or role.kind in (*TRAVELS, "host"):
            return None, ""
        peak = self.peak(role.dtype) if role.kind in MATMULS else None
        compute = self.done(number) * role.flops / peak if role.flops and peak else 0.0
        memory = role.hbm_bytes / self.chip.bandwidth("hbm") if role.hbm_bytes else 0.0
        if not compute and not memory:
            return None, ""
        return max(compute, memory), "compute" if compute >= memory else "memory"


@dataclass(frozen=True, kw_only=True)
class StepOps:
    """A mean step of one device, op by op. `roles` and `totals` have one entry for each op of the recording; `mesh` and
    `piece` are the plan's, where there is one; `work` is the device's, None of a program that was not timed."""

    recording: Recording
    roles: list[OpRole]
    totals: OpTotals
    chip: Chip | None
    step_s: float = 0.0
    mesh: dict[str, int] = field(default_factory=dict)
    piece: Slice | None = None
    work: DeviceWork | None = None

    @cached_property
    def roof(self) -> ChipRoof:
        """What its ops are held against."""
        return ChipRoof(self.chip, causal_ops(self.recording))

    @cached_property
    def ran(self) -> list[int]:
        """The ops that ran, the longest first."""
        return self.totals.ran.tolist()

    @property
    def ran_roles(self) -> Iterator[tuple[int, OpRole]]:
        """The same with what they are."""
        return ((number, self.roles[number]) for number in self.ran)

    def amount(self, number: int, what: str) -> float:
        """FLOPs or bytes of all runs of an op; none where they are not known."""
        return (getattr(self.roles[number], what) or 0.0) * float(self.totals.works[number])

    def share(self, seconds: float) -> float:
        """Seconds as a part of the step."""
        return seconds / self.step_s if self.step_s else 0.0

    def in_flight(self, ops: Sequence[int]) -> float:
        """Seconds of a mean step in which any of some ops runs: transfers beside each other share the wires."""
        if self.work is None:
            return float(self.totals.seconds[ops].sum())
        wanted = np.zeros(len(self.recording.ops), bool)
        wanted[ops] = True
        some = self.work.pieces.chosen(wanted[self.recording.events.op[self.work.pieces.event]])
        return measure(union(some.start, some.end), self.work.windows) / max(1, len(self.work.windows)) / 1e9

    def flops(self, kinds: Collection[str], computed: bool = False) -> float | None:
        """FLOPs of ops of some kinds, only those `computed` where a causal mask hides half; None where no op's are
        known."""
        known = [
            float(role.flops * (self.totals.works[number] * (self.roof.done(number) if computed else 1.0)))
            for number, role in self.ran_roles
            if role.kind in kinds and role.kind not in TRAVELS and role.flops is not None
        ]
        return float(sum(known)) if known else None

    @cached_property
    def dtype(self) -> str:
        """The dtype that most matmul FLOPs are computed in; empty where it is not known."""
        amount: dict[str, float] = {}
        for number, role in self.ran_roles:
            if role.kind in MATMULS and role.dtype:
                amount[role.dtype] = amount.get(role.dtype, 0.0) + self.amount(number, "flops") + 1e-9
        return max(amount, key=lambda name: amount[name], default="")


def limited_by(bound: str, fraction: float | None, each: float, kind: str) -> str:
    """What holds an op back: its roof where it comes near, else the launch where it is short."""
    if kind in TRAVELS:
        return "network"
    if kind == "host":
        return "host link"
    if each and each < LAUNCH and (fraction is None or fraction < 0.3):
        return "launch"
    return bound
