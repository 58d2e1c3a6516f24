"""What a profile says, as records: the step and its parts, groups and ops against their rooflines, communication, gaps,
waste, memory.

Seconds, FLOPs and bytes are those of one step on one device (the mean over the steps that were kept, on the device that
is told about) unless a field says otherwise. What is not known is None, never zero.
"""

import msgspec


class RecordedStep(msgspec.Struct, frozen=True):
    """One step: when it began in the recording, how long it took, and whether it was kept (the first and the last may
    be cut off)."""

    number: int
    start_s: float
    seconds: float
    name: str = ""
    kept: bool = True


class StepsFound(msgspec.Struct, frozen=True):
    """The steps of a recording and how they were found. `spread` is (slowest - fastest) / median of those kept;
    `between_s` is the median time from the end of one step to the start of the next, and `between` what ran there."""

    found_by: str
    count: int
    kept: int
    median_s: float
    fastest_s: float
    slowest_s: float
    spread: float
    steps: tuple[RecordedStep, ...] = ()
    between_s: float = 0.0
    between: tuple[str, ...] = ()
    chosen: int | None = None
    """The one step that was asked for; the only one kept then."""


class TimePart(msgspec.Struct, frozen=True):
    """A part of the step: `compute`, `exposed communication`, `exposed copies` or `idle`. The parts
    add up to the step."""

    name: str
    seconds: float
    share: float


class DeviceTime(msgspec.Struct, frozen=True):
    """The parts of a step on one device. `overlapped_s` is communication that ran while something was computed."""

    device: int
    name: str
    step_s: float
    compute_s: float
    communication_s: float
    copies_s: float
    idle_s: float
    overlapped_s: float = 0.0


def achieved_rate(
    kind: str, bound_by: str, flops_per_s: float | None, bytes_per_s: float | None
) -> tuple[float | None, str]:
    """The rate that says how well work was done, and its unit: FLOP/s of what multiplies, bytes/s of what memory bounds
    and of the rest."""
    multiplies = kind in ("matmul", "grouped matmul", "attention") and bound_by != "memory"
    return (flops_per_s, "FLOP/s") if multiplies and flops_per_s else (bytes_per_s or None, "bytes/s")


class WorkGroup(msgspec.Struct, frozen=True):
    """The ops of one section, phase and kind. `seconds` is their own time (without what is nested in them); `exposed_s`
    the part of it during which nothing else of higher rank ran: of communication, what the step waits for, and `share`
    is that part of the step. Transfers beside each other count once in `seconds`, and as those of several groups
    overlap, only `exposed_s` adds up to a step. `flops` are those computed: half of attention's where its mask is known
    to be causal. `fraction` is `bound_s` over `seconds`: the achieved part of its own roofline. `bound_by` is compute,
    memory, network or launch, empty where nothing is known."""

    section: str
    phase: str
    kind: str
    seconds: float
    share: float
    exposed_s: float
    times: float
    ops: int
    flops: float | None = None
    hbm_bytes: float | None = None
    wire_bytes: float | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    bound_s: float | None = None
    fraction: float | None = None
    bound_by: str = ""

    @property
    def achieved(self) -> tuple[float | None, str]:
        """The rate at which it was done."""
        return achieved_rate(self.kind, self.bound_by, self.flops_per_s, self.bytes_per_s)


class WorkOp(msgspec.Struct, frozen=True):
    """One op, with the same numbers as its group; `number` is its place in the recording's list of ops."""

    number: int
    name: str
    section: str
    phase: str
    kind: str
    seconds: float
    share: float
    times: float
    dtype: str = ""
    shapes: str = ""
    scope: str = ""
    source: str = ""
    flops: float | None = None
    hbm_bytes: float | None = None
    wire_bytes: float | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    bound_s: float | None = None
    fraction: float | None = None
    bound_by: str = ""
    exposed_s: float = 0.0

    achieved = WorkGroup.achieved


class MoveLine(msgspec.Struct, frozen=True):
    """Collectives of one kind over one set of mesh axes (or over groups of one form, where no plan says the axes):
    seconds in flight, exposed and overlapped; `bus_bytes_per_s` is what each chip sent a second, `wire_bytes_per_s`
    what its wires give."""

    kind: str
    over: str
    seconds: float
    exposed_s: float
    overlapped_s: float
    times: float
    axes: tuple[str, ...] = ()
    group_size: int | None = None
    sent_bytes: float | None = None
    bus_bytes_per_s: float | None = None
    wire_bytes_per_s: float | None = None
    fraction: float | None = None


class GapLine(msgspec.Struct, frozen=True):
    """Idle time of one cause: launch-bound, host stall, waiting for other devices, copies, between kernels, or not
    known."""

    cause: str
    seconds: float
    times: float
    longest_s: float
    what: tuple[str, ...] = ()
    """Host events that covered most of it, the largest first."""


class WasteLine(msgspec.Struct, frozen=True):
    """Seconds that compute nothing new: padding of tiles, layout copies, transposes, conversions."""

    what: str
    seconds: float
    share: float
    ops: tuple[str, ...] = ()


class MemoryTime(msgspec.Struct, frozen=True):
    """Bytes in use on a device over the recording: the peak, when it was, and a thinned series of (seconds, bytes)."""

    device: int
    peak_bytes: float
    peak_at_s: float
    capacity_bytes: float | None = None
    series: tuple[tuple[float, float], ...] = ()


class BesideLine(msgspec.Struct, frozen=True):
    """A group as it was measured beside the plan's ledger; `difference_s` is measured minus expected."""

    section: str
    phase: str
    kind: str
    measured_s: float
    expected_s: float
    difference_s: float
    bound_s: float | None = None
    measured_flops: float | None = None
    planned_flops: float | None = None
    measured_bytes: float | None = None
    planned_bytes: float | None = None
    why: str = ""


class Saving(msgspec.Struct, frozen=True):
    """A change and the seconds of a step it would save, largest first."""

    seconds: float
    what: str
    why: str = ""


class ProfileReading(msgspec.Struct, frozen=True):
    """A whole profile, read. `static` is true where nothing was timed (an HLO dump): all seconds are then bounds at
    datasheet rates."""

    source: str
    software: str
    device: str
    devices: int
    chip: str
    """The chip of our data that the rooflines are of; empty where it is not known."""
    static: bool
    step_s: float
    steps: StepsFound
    parts: tuple[TimePart, ...]
    by_device: tuple[DeviceTime, ...]
    groups: tuple[WorkGroup, ...]
    ops: tuple[WorkOp, ...]
    """The longest of a step, first `--top` of them."""
    attributed_kind: float
    attributed_section: float
    """Shares of device time that are told by kind, and by section."""
    guessed_section: float = 0.0
    """The share whose section the order of kernels alone says, a part of `attributed_section`."""
    flops: float | None = None
    matmul_flops: float | None = None
    """As XLA and PyTorch count them: all scores of attention, masked or not."""
    computed_flops: float | None = None
    """Those of them that were computed: half of attention's where its mask is known to be causal. HFU counts these."""
    mfu: float | None = None
    hfu: float | None = None
    communication: tuple[MoveLine, ...] = ()
    gaps: tuple[GapLine, ...] = ()
    waste: tuple[WasteLine, ...] = ()
    memory: tuple[MemoryTime, ...] = ()
    plan: str = ""
    model: str = ""
    planned_step_s: float | None = None
    differs: tuple[str, ...] = ()
    """Sentences that say why the plan is not of what was recorded; no MFU is told then."""
    beside: tuple[BesideLine, ...] = ()
    savings: tuple[Saving, ...] = ()
    sizes: dict[str, float] = {}
    """Sizes of the model inferred from the shapes of its matmuls."""
    unknown: tuple[str, ...] = ()
    """What could not be told, in sentences."""
    notes: tuple[str, ...] = ()
