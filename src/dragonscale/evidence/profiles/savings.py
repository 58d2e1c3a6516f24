"""What to change, in seconds of a step, largest first.

Each line says what could be saved at most and why. With a plan the yardstick is its expectation; without one it is what
good kernels reach on the chip (`expected.py`). Idle time, exposed transfers and copies are savings by themselves, as
nothing is computed in them. Lines are apart from each other as far as they can be: copies are not counted again with
their group, nor where the plan's lines have them.
"""

import re
from collections import defaultdict

from dragonscale.evidence.profiles.beside import IDLE
from dragonscale.evidence.profiles.expected import expected_seconds, known_kernels
from dragonscale.evidence.profiles.gaps import BETWEEN, COMPILED, HOST, INSIDE, LAUNCH, OVERHEAD, QUEUED, STALL
from dragonscale.evidence.profiles.names import short_name
from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import OpTotals
from dragonscale.evidence.profiles.records import BesideLine, GapLine, MoveLine, ProfileReading, Saving, WasteLine
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.waste import CASTS, COPIED, EXPERTS, FILLS, LAYOUTS, PADDING, STACKS
from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render

LEAST = 0.005
"""Share of a step below which a saving is not worth a line."""
MOST = 8
_GOOD = 0.9
"""The part of a good kernel's rate above which there is nothing to say."""

_ADVICE = {
    LAUNCH: (
        "the host issues kernels more slowly than the device runs them",
        "capture the step in a graph (CUDA graphs, torch.compile, jit), fuse small ops, or make the batch larger",
    ),
    STALL: (
        "the host had stopped issuing",
        "take the synchronisation, the data loading or the copy to the host out of the step",
    ),
    QUEUED: (
        "kernels were launched and waited",
        "look for dependencies between streams, and for other devices that are late",
    ),
    BETWEEN: ("a few microseconds before each kernel", "fuse small kernels, or replay them as one graph"),
    INSIDE: ("the program itself waits", "look at transfers that start late, and at loops over small bodies"),
    HOST: (
        "nothing was launched",
        "launch the next step before the last one is over, and keep the input ready on the device",
    ),
    COMPILED: (
        "no op ran",
        "threads wait for each other or for the machine: leave it nothing else to do, or make ops larger",
    ),
    OVERHEAD: ("nothing was computed", "compile the step (jit, torch.compile), or make its ops larger"),
}


def find_savings(
    reading: ProfileReading,
    totals: OpTotals,
    roles: list[OpRole],
    chip: Chip | None,
    beside: tuple[BesideLine, ...],
    attention: dict[int, float] | None = None,
) -> tuple[Saving, ...]:
    """The changes that would save most; `attention` are seconds that attention ops should take, by their numbers."""
    found = _against_plan(beside, reading) if beside else _against_kernels(totals, roles, chip, attention or {})
    found += [_gap(gap) for gap in reading.gaps]
    if not beside:
        found += [_move(move) for move in reading.communication if move.kind != "host"]
    found += [_move(move) for move in reading.communication if move.kind == "host"]
    found += [
        Saving(one.seconds, one.what, _waste_advice(one))
        for one in reading.waste
        if not beside or one.what not in (*COPIED, EXPERTS)
    ]
    copies = next((part.seconds for part in reading.parts if part.name == "exposed copies"), 0.0)
    copies -= sum(move.exposed_s for move in reading.communication if move.kind == "host")
    found.append(
        Saving(copies, "copies that nothing hides", "overlap them with compute, or keep the data on the device")
    )
    worth = [one for one in found if one.seconds > LEAST * reading.step_s]
    return tuple(sorted(worth, key=lambda one: -one.seconds)[:MOST])


_HOST_ADVICE = (
    (
        r"(?i)synchroni[sz]e|block_until|local_scalar_dense|::item|await|copy_to_host|memcpydtoh",
        "the host waited for the device: read results back less often, or a step later",
    ),
    (
        r"(?i)dataload|dataset|tokeni|next_batch|infeed|read_?file|__next__|prefetch",
        "the input was not ready: load it in other processes, some steps ahead",
    ),
    (
        r"(?i)compil(e|ing)\b|inductor|xla::.*compile|autotun|triton\.jit|backend_compile",
        "something was compiled: record after the first steps, and keep shapes the same",
    ),
    (
        r"(?i)malloc|allocat|garbage|gc\.collect|cudafree",
        "memory was allocated or freed: let the allocator keep it, and free nothing in the step",
    ),
    (
        r"(?i)execut|dispatch|command_buffer|pjrt|pjit|launch|compiled region|graph",
        "the runtime was starting the program: let the next step be launched while this one runs, or make steps longer",
    ),
)
"""What is to be done where the host's events have such names, the first that fits."""


def _gap(gap: GapLine) -> Saving:
    why, do = _ADVICE[gap.cause]
    if gap.cause == LAUNCH and any("ompiled" in name for name in gap.what):
        do = (
            "the step is compiled already: replay it as a CUDA graph (torch.compile's mode reduce-overhead), or make "
            "the batch larger"
        )
    if gap.cause in (STALL, HOST):
        do = next(
            (text for pattern, text in _HOST_ADVICE if any(re.search(pattern, name) for name in gap.what[:2])), do
        )
    during = f"; meanwhile the host: {', '.join(map(_brief, gap.what[:2]))}" if gap.what else ""
    return Saving(gap.seconds, f"idle, {gap.cause}: {why}{during}", do)


_WASTE_ADVICE = {
    EXPERTS: (
        "the grouped matmul was expanded over all experts: use a kernel that multiplies each token with its own "
        "expert alone (megablox, a grouped GEMM), or sort tokens into buffers of a fixed capacity"
    ),
    PADDING: "choose sizes in whole tiles (multiples of 8 by 128)",
    CASTS: "keep arrays, the weights above all, in the dtype that they are multiplied in",
    STACKS: "what a loop over layers saves is copied into one array: save less, or unroll the loop",
    FILLS: "buffers are zeroed before they are written: fewer accumulators, or none",
    LAYOUTS: "keep one layout from op to op: transpose weights once, ahead of time",
}


def _brief(name: str) -> str:
    """A long name of a host's event as short as a sentence can take it.

    >>> _brief("[0] PjRtStreamExecutorRawLoadedExecutable::Execute")
    'PjRtStreamExecutorRawLoadedExecutable…'
    """
    plain = re.sub(r"^\[\d+\] ", "", name).strip()
    return plain if len(plain) <= 38 else f"{plain[:37]}…"


def _waste_advice(waste: WasteLine) -> str:
    do = _WASTE_ADVICE[waste.what]
    return f"{do}; largest: {', '.join(dict.fromkeys(map(short_name, waste.ops[:3])))}" if waste.ops else do


def _move(move: MoveLine) -> Saving:
    if move.kind != "host":
        return Saving(
            move.exposed_s,
            f"{move.kind.replace('_', '-')} over {move.over} waits for the network",
            _wires(move.fraction),
        )
    rate = f" at {render(move.bus_bytes_per_s, 'bytes/s')}" if move.bus_bytes_per_s else ""
    sent = f" ({render(move.sent_bytes, 'bytes')} a step{rate})" if move.sent_bytes else ""
    why = "keep it in the device's memory, move less of it, or start it so early that something is computed meanwhile"
    return Saving(move.exposed_s, f"the device waits for transfers {move.over}{sent}", why)


def _wires(fraction: float | None) -> str:
    if fraction is None:
        return "start it earlier, so that something is computed while it runs"
    if fraction < 0.5:
        return f"it runs at {fraction:.0%} of what the wires carry: small messages, or a slow tier"
    return f"it runs at {fraction:.0%} of what the wires carry: overlap it, or send less"


def _against_plan(lines: tuple[BesideLine, ...], reading: ProfileReading) -> list[Saving]:
    found = []
    for line in lines:
        drawer = (line.section, line.phase, line.kind)
        if line.difference_s <= 0 or drawer == IDLE:
            continue
        name = _told(line.section, line.phase, line.kind)
        took = f"{render(line.measured_s, 's')} where {render(line.expected_s, 's')} is expected"
        copied = [f"{render(one.seconds, 's')} {one.what}" for one in reading.waste if one.what in COPIED]
        why = ", ".join(copied) if line.kind == "copies" else line.why
        found.append(Saving(line.difference_s, f"{name}: {took}", why))
    return found


def _against_kernels(
    totals: OpTotals, roles: list[OpRole], chip: Chip | None, attention: dict[int, float]
) -> list[Saving]:
    kernels = known_kernels(chip)
    spent: dict[tuple[str, str, str], float] = defaultdict(float)
    meant: dict[tuple[str, str, str], float] = defaultdict(float)
    for one in totals.ran.tolist():
        role = roles[one]
        if role.kind in (*TRAVELS, "copy", "host", "control"):
            continue
        key = role.section, role.phase, role.kind
        if role.kind == "attention" and (one in attention or role.flops == 0.0):
            # several kernels make one attention: the time is that of all of them, the work is told with one
            spent[key] += float(totals.seconds[one])
            meant[key] += attention.get(one, 0.0) * float(totals.works[one])
            continue
        each = expected_seconds(role, kernels)
        if each is None:
            continue
        # what is faster than expected does not make up for what is slower
        spent[key] += max(float(totals.seconds[one]), each * float(totals.works[one]))
        meant[key] += each * float(totals.works[one])
    found = []
    for key, seconds in spent.items():
        rate = meant[key] / seconds if seconds else 1.0
        if rate > _GOOD or not meant[key]:
            continue
        text = f"{_told(*key)} runs at {rate:.0%} of the rate that good kernels reach on this chip"
        found.append(Saving(seconds - meant[key], text, _kernel_advice(key[2])))
    return found


def _kernel_advice(kind: str) -> str:
    if kind in ("matmul", "grouped matmul"):
        return "larger matmuls, dims in multiples of 128, fused projections; few rows are bound by reading the weights"
    if kind == "attention":
        return "a flash kernel made for this chip and head size, of a newer version of its library if it is one already"
    return "fuse it with its neighbours: each pass over memory costs"


def _told(section: str, phase: str, kind: str) -> str:
    """A drawer or group in words: `attention backward`, `mlp matmul forward`, `all-gather over fsdp`.

    >>> _told("attention", "backward", "attention"), _told("mlp", "", "matmul"), _told("fsdp", "", "all_gather")
    ('attention backward', 'MLP matmul', 'exposed all-gather over fsdp')
    """
    if kind in TRAVELS:
        return f"exposed {kind.replace('_', '-')} over {section}"
    if kind == "copies":
        return "copies of layouts and dtypes"
    words = ["MLP" if section == "mlp" else section or "other", kind if kind != section else "", phase]
    return " ".join(word for word in words if word)
