"""What to change, in seconds of a step, largest first.

Each line says what could be saved at most and why. With a plan the yardstick is its expectation; without one it is what
good kernels reach on the chip. Idle time, exposed transfers and copies are savings by themselves, as nothing is
computed in them. Lines are apart from each other as far as they can be: copies are not counted again with their group,
nor where the plan's lines have them.

What an op should take (`expected_seconds`) is its FLOPs and bytes at the rates of the chip's efficiency profile. A
bound says what no kernel beats; this says what people's kernels do, and so what is there to be saved. Sizes of the
matmul are not needed: large ones reach `rate` of the peak and `sustained` of that when they last, memory is read at a
fraction of the datasheet's. Attention is not so simple: its time is the kernel profile's, by its shapes, as in a
plan; where they are not recorded nothing is expected of it.
"""

import re
from collections import defaultdict

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.beside import IDLE
from dragonscale.evidence.profiles.device_work import TRAVELS
from dragonscale.evidence.profiles.gaps import HOST, LAUNCH, STALL
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.names import short_name, table
from dragonscale.evidence.profiles.per_op import MATMULS, StepOps
from dragonscale.evidence.profiles.records import BesideLine, GapLine, MoveLine, ProfileReading, Saving, WasteLine
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.waste import COPIED, EXPERTS
from dragonscale.evidence.profiles.work_by_shapes import attention_dims
from dragonscale.physics.hardware import Chip
from dragonscale.physics.kernels import KernelProfile, kernel_profile_for
from dragonscale.physics.kernels.attention import attention_backward_seconds, attention_seconds
from dragonscale.physics.units import render


def known_kernels(chip: Chip | None, library: str = "") -> KernelProfile | None:
    """The chip's efficiency profile, where there is one: that of a library's kernels if it has its own."""
    try:
        return kernel_profile_for(chip, library=library) if chip is not None else None
    except InputError:
        return None


def expected_attention(step: StepOps) -> dict[int, float]:
    """Seconds of one run of each attention op whose shapes are known, by its number."""
    recording, causal = step.recording, step.roof.causal
    profile = known_kernels(step.chip, "jax" if recording.programs or "jax" in recording.software.lower() else "")
    if profile is None:
        return {}
    reader, found = HloReader(recording), dict[int, float]()
    for number, (op, role) in enumerate(zip(recording.ops, step.roles, strict=True)):
        if role.kind != "attention" or not role.flops:
            continue
        dims = attention_dims(op, reader.operands(op))
        if dims is None or dims.tokens < 2:  # a single query is decoding, whose keys are in pages
            continue
        formula = attention_backward_seconds if role.phase == "backward" else attention_seconds
        shapes = (dims.sequences, dims.tokens, dims.keys, dims.heads, dims.kv_heads, dims.size)
        found[number] = float(formula(*shapes, role.dtype or "bf16", profile, causal=number in causal))
    return found


def expected_seconds(role: OpRole, profile: KernelProfile | None) -> float | None:
    """Seconds of one run of an op by a good kernel; None where too little is known, and for attention
    (`expected_attention`)."""
    if profile is None or role.kind in (*TRAVELS, "attention") or (not role.flops and not role.hbm_bytes):
        return None
    memory = (role.hbm_bytes or 0.0) / (profile.bandwidth * profile.stream.bandwidth)
    if role.kind not in MATMULS or not role.flops:
        return profile.stream.launch + memory
    try:
        table = profile.matmul.of(role.dtype or "bf16")
        peak = profile.chip.peak(role.dtype or "bf16")
    except InputError:
        return None
    compute = role.flops / (peak * (table.rate * table.sustained))
    return table.launch + max(compute, (role.hbm_bytes or 0.0) / (profile.bandwidth * table.bandwidth))


LEAST = 0.005
"""Share of a step below which a saving is not worth a line."""
MOST = 8
_GOOD = 0.9
"""The part of a good kernel's rate above which there is nothing to say."""


def find_savings(
    reading: ProfileReading,
    step: StepOps,
    beside: tuple[BesideLine, ...] = (),
    attention: dict[int, float] | None = None,
) -> tuple[Saving, ...]:
    """The changes that would save most; `attention` are seconds that attention ops should take, by their numbers."""
    found = _against_plan(beside, reading) if beside else _against_kernels(step, attention or {})
    found += [_gap(gap) for gap in reading.gaps]
    if not beside:
        found += [_move(move) for move in reading.communication if move.kind != "host"]
    found += [_move(move) for move in reading.communication if move.kind == "host"]
    waste = (line for line in reading.waste if not beside or line.what not in (*COPIED, EXPERTS))
    found += [Saving(line.seconds, line.what, _waste_advice(line)) for line in waste]
    copies = next((part.seconds for part in reading.parts if part.name == "exposed copies"), 0.0)
    copies -= sum(move.exposed_s for move in reading.communication if move.kind == "host")
    hide = "overlap them with compute, or keep the data on the device"
    found.append(Saving(copies, "copies that nothing hides", hide))
    worth = [one for one in found if one.seconds > LEAST * reading.step_s]
    return tuple(sorted(worth, key=lambda one: -one.seconds)[:MOST])


def _gap(gap: GapLine) -> Saving:
    advice = table("advice.toml")
    why, do = advice["idle"][gap.cause]["why"], advice["idle"][gap.cause]["do"]
    if gap.cause == LAUNCH and any("ompiled" in name for name in gap.what):
        do = advice["kernels"]["compiled"]
    if gap.cause in (STALL, HOST):
        fits = (text for text, names in advice["host"].items() if any(re.search(names, each) for each in gap.what[:2]))
        do = next(fits, do)
    during = f"; meanwhile the host: {', '.join(map(_brief, gap.what[:2]))}" if gap.what else ""
    return Saving(gap.seconds, f"idle, {gap.cause}: {why}{during}", do)


def _brief(name: str) -> str:
    """A long name of a host's event as short as a sentence can take it.

    >>> _brief("[0] PjRtStreamExecutorRawLoadedExecutable::Execute")
    'PjRtStreamExecutorRawLoadedExecutable…'
    """
    plain = re.sub(r"^\[\d+\] ", "", name).strip()
    return plain if len(plain) <= 38 else f"{plain[:37]}…"


def _waste_advice(waste: WasteLine) -> str:
    do = table("advice.toml")["waste"][waste.what]
    return f"{do}; largest: {', '.join(dict.fromkeys(map(short_name, waste.ops[:3])))}" if waste.ops else do


def _move(move: MoveLine) -> Saving:
    if move.kind != "host":
        what = f"{move.kind.replace('_', '-')} over {move.over} waits for the network"
        return Saving(move.exposed_s, what, _wires(move.fraction))
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


def _against_kernels(step: StepOps, attention: dict[int, float]) -> list[Saving]:
    kernels, advice, totals = known_kernels(step.chip), table("advice.toml")["kernels"], step.totals
    spent: dict[tuple[str, str, str], float] = defaultdict(float)
    meant: dict[tuple[str, str, str], float] = defaultdict(float)
    for one, role in step.ran_roles:
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
        found.append(Saving(seconds - meant[key], text, advice.get(key[2], advice["other"])))
    return found


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
