"""A recording that has been read, analysed and laid beside its plan: what `dscale profile` says."""

from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.profiles import analysis
from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.attribution import attributed
from dragonscale.evidence.profiles.beside import ExpectedStep, beside
from dragonscale.evidence.profiles.kineto_tracks import NO_KERNELS
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import BesideLine, ProfileReading, Saving
from dragonscale.evidence.profiles.same_run import plan_differs
from dragonscale.evidence.profiles.savings import expected_attention, find_savings
from dragonscale.evidence.profiles.sizes import infer_sizes
from dragonscale.evidence.profiles.waste import expanded_experts
from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render

# Fractions of device time (or of the step) from which on a gap in what is known is worth a sentence.
KNOWN_KINDS = 0.97
KNOWN_SECTIONS = 0.9
MAX_GUESSED = 0.1
MAX_UNNAMED = 0.1
MAX_WITHOUT_FLOPS = 0.02
# HFU counts recomputation too, so it lies above MFU; below this fraction of it the profile lacks FLOPs.
HFU_OF_MFU = 0.98

_GUESSED = (
    "Of {share:.0%} of the device's time nothing names the part of the model or its pass: they are guessed from the "
    "order of kernels, and rows of one part may belong to another. {better}"
)
# What a recording needs so that its parts are known, by what wrote it.
_NAMED = {
    "JAX/XProf": "The xplane.pb of the same recording names every op.",
    "PyTorch/Kineto": "Record with with_stack=True, or put torch.profiler.record_function around parts.",
    "": "Ranges around parts of the model (NVTX) name them.",
}


def profiled(
    path: str,
    recording: Recording,
    planned: ExpectedStep | None,
    chip: Chip | None,
    unknown: str,
    top: int,
    step: int | None,
) -> Analysis:
    """A recording analysed, with its plan beside it where there is one.

    `chip` gives the rooflines (`unknown` says why there is none), `top` is how many ops are listed, `step` picks one
    step of the recording.
    """
    if planned is not None and NO_KERNELS in recording.notes:
        raise InputError(f"{path} has no kernels, only the host's times: there is nothing to lay a plan beside.")
    mesh = planned.mesh if planned is not None else {}
    where = planned.piece if planned is not None else None
    if analysis.busy_devices(recording):
        split, roles = attributed(recording)
        if NO_KERNELS in recording.notes:  # the FLOPs were not computed in the host's time
            roles = [msgspec.structs.replace(role, flops=None, hbm_bytes=None) for role in roles]
        read = analysis.analyse(split, roles, chip, top, mesh, step, where)
    elif recording.programs:
        read = analysis.analyse_program(recording, chip, top, mesh, where)
    else:
        raise InputError(f"{path} is a profile in which no device did anything; record while steps run.")
    return completed(read, planned, unknown)


def completed(read: Analysis, planned: ExpectedStep | None, unknown: str) -> Analysis:
    """An analysis with the plan beside it, what would save most, and what could not be told."""
    reading = read.reading
    notes = [*reading.notes, *_expanded(read)]
    unknowns = [*reading.unknown, unknown, *_unknown(read)]
    sizes = infer_sizes(analysis.one_step(read), read.roles, read.totals.times if reading.static else None)
    changed: dict[str, Any] = {"savings": () if reading.static else _savings(read), "sizes": sizes.sizes}
    if planned is None:
        notes.append(sizes.note)
        unknowns += sizes.unknown
    else:
        changed |= _beside_plan(read, planned, sizes.sizes)
        mfu = changed["mfu"]
        if mfu and reading.hfu and reading.hfu < HFU_OF_MFU * mfu:
            unknowns.append(
                "MFU is above HFU: the profile has less FLOPs than the model; the shapes of some matmuls are missing."
            )
    return analysis.with_reading(
        read, notes=tuple(filter(None, notes)), unknown=tuple(filter(None, unknowns)), **changed
    )


def _beside_plan(read: Analysis, planned: ExpectedStep, sizes: dict[str, float]) -> dict[str, Any]:
    """The fields of a reading that its plan gives; savings only where it is the plan of what was recorded and timed."""
    reading = read.reading
    differs = plan_differs(planned, reading, read, sizes)
    idle_s = sum(part.seconds for part in reading.parts if part.name == "idle")
    lines = beside(planned, read, reading.groups, idle_s)
    mfu = _mfu(read, planned)
    fields: dict[str, Any] = {
        "beside": lines,
        "plan": planned.request.plan,
        "model": planned.request.model,
        "planned_step_s": planned.seconds,
    }
    # what a plan of something else expects is no yardstick
    if not differs and not reading.static:
        fields["savings"] = _savings(read, lines)
    if mfu and mfu > 1 and not differs:
        differs = (f"The plan is not of what was recorded: its FLOPs in this time would be an MFU of {mfu:.0%}.",)
    return fields | {"mfu": None if differs else mfu, "differs": differs}


def _mfu(read: Analysis, planned: ExpectedStep) -> float | None:
    """The model's FLOPs in the measured step over the chip's peak; None where one is not known or nothing was timed."""
    reading, peak = read.reading, read.roof.peak(read.dtype)
    if reading.static or not planned.model_flops or not peak or not reading.step_s:
        return None
    return planned.model_flops / reading.step_s / peak


def _savings(read: Analysis, lines: tuple[BesideLine, ...] = ()) -> tuple[Saving, ...]:
    """What would save most, measured against the plan's lines, or without a plan against attention as expected."""
    return find_savings(read.reading, read, lines, None if lines else expected_attention(read))


def _expanded(read: Analysis) -> list[str]:
    """How much of the FLOPs is multiplied for nothing, where grouped matmuls run over all experts."""
    experts = expanded_experts(read.recording, read.roles)  # experts of the matmul by op
    executed = useful = 0.0
    for op, count in experts.items():
        flops = (read.roles[op].flops or 0.0) * float(read.totals.works[op])
        executed += flops
        useful += flops / count
    if not executed:
        return []
    return [
        f"Grouped matmuls ran over all {max(experts.values())} experts for every token: {render(executed, 'FLOPs')} "
        f"where {render(useful, 'FLOPs')} are needed; HFU and the rate of their rows count all of them."
    ]


def _unknown(read: Analysis) -> list[str]:
    """What the reading could not tell, in sentences."""
    reading, sentences = read.reading, list[str]()
    if reading.hfu and reading.hfu > 1:
        sentences.append(
            f"HFU is above 100%: {reading.chip} cannot do that. The recorded times are not those of its kernels, "
            "or it ran elsewhere."
        )
    if reading.attributed_kind < KNOWN_KINDS:
        sentences.append(f"{1 - reading.attributed_kind:.0%} of the device's time is in ops whose kind is not known.")
    if reading.attributed_section < KNOWN_SECTIONS:
        sentences.append(
            f"{1 - reading.attributed_section:.0%} of the device's time is in ops whose part of the model is not known."
        )
    if reading.guessed_section > MAX_GUESSED:
        better = _NAMED.get(reading.software, _NAMED[""])
        sentences.append(_GUESSED.format(share=reading.guessed_section, better=better))
    if reading.attributed_section >= KNOWN_SECTIONS and _unnamed_s(read) > MAX_UNNAMED * reading.step_s:
        sentences.append("Nothing in the profile names parts of a model: ops stand under the name of their program.")
    if _without_flops_s(reading) > MAX_WITHOUT_FLOPS * reading.step_s and NO_KERNELS not in reading.notes:
        sentences.append(
            "The profile has no shapes for some matmuls, so their FLOPs are not known (PyTorch: record_shapes=True)."
        )
    return sentences


def _unnamed_s(read: Analysis) -> float:
    """Exposed seconds of ops that stand under the name of their program, for want of a part of the model."""
    programs = {op.module.split("(", 1)[0] for op in read.recording.ops if op.module}
    return sum(group.exposed_s for group in read.reading.groups if group.section in programs)


def _without_flops_s(reading: ProfileReading) -> float:
    """Seconds of matmuls and attention whose FLOPs are not known."""
    multiplying = ("matmul", "attention", "grouped matmul")
    return sum(group.seconds for group in reading.groups if group.kind in multiplying and group.flops is None)
