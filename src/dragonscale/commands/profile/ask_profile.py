"""The answer to `dscale profile`: read the file, say what each op is, find the steps, lay the plan beside it."""

from typing import Any

import msgspec

from dragonscale.commands.profile.page import save_page
from dragonscale.commands.profile.profile_question import ProfileAsked, read_question, the_chip
from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.commands.profile.profile_sheet import profile_sheet
from dragonscale.commands.profile.trace import save_trace
from dragonscale.commands.questions.verify import ProfileQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.errors import InputError
from dragonscale.evidence.profiles import analysis
from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.attribution import attributed
from dragonscale.evidence.profiles.beside import ExpectedStep, beside, expected_step
from dragonscale.evidence.profiles.kineto_tracks import NO_KERNELS
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import BesideLine, Saving
from dragonscale.evidence.profiles.same_run import plan_differs
from dragonscale.evidence.profiles.savings import expected_attention, find_savings
from dragonscale.evidence.profiles.sizes import infer_sizes
from dragonscale.evidence.profiles.waste import expanded_experts
from dragonscale.listener import Listener
from dragonscale.physics.units import render

bind(ProfileReport, Face(sheet=profile_sheet, page=save_page, timeline=save_trace))


def ask(question: ProfileQuestion, listener: Listener) -> ProfileReport:
    """Read a question and a profile, tell where the time went."""
    asked = read_question(question)
    for text in asked.notes:
        listener.note(text)
    recording = read_recording(asked.path, listener)
    return profiled(asked, recording).came_from(asked, listener.notes)


def profiled(asked: ProfileAsked, recording: Recording) -> ProfileReport:
    """A recording that has been read, analysed and laid beside its plan."""
    chip, unknown = the_chip(asked, recording)
    if asked.request is not None and NO_KERNELS in recording.notes:
        raise InputError(f"{asked.path} has no kernels, only the host's times: there is nothing to lay a plan beside.")
    planned = expected_step(asked.request, asked.stack, asked.engine) if asked.request is not None else None
    mesh = planned.mesh if planned is not None else {}
    piece = planned.piece if planned is not None else None
    top, step = asked.question.top, asked.question.step
    if not analysis.busy_devices(recording):
        if not recording.programs:
            raise InputError(f"{asked.path} is a profile in which no device did anything; record while steps run.")
        found = analysis.analyse_program(recording, chip, top, mesh, piece)
    else:
        split, roles = attributed(recording)
        if NO_KERNELS in recording.notes:  # the FLOPs were not computed in the host's time
            roles = [msgspec.structs.replace(role, flops=None, hbm_bytes=None) for role in roles]
        found = analysis.analyse(split, roles, chip, top, mesh, step, piece)
    return ProfileReport.of(completed(found, planned, unknown))


def completed(found: Analysis, planned: ExpectedStep | None, unknown: str) -> Analysis:
    """With the plan beside it, what would save most, and what could not be told."""
    reading = found.reading
    notes, told = [*reading.notes, *_expanded(found)], [*reading.unknown, unknown, *_unknown(found)]
    sizes = infer_sizes(analysis.one_step(found), found.roles, found.totals.times if reading.static else None)
    changed: dict[str, Any] = {"savings": () if reading.static else _savings(found), "sizes": sizes.sizes}
    if planned is None:
        notes, told = [*notes, sizes.note], [*told, *sizes.unknown]
    else:
        changed |= _beside_plan(found, planned, sizes.sizes)
        if (mfu := changed["mfu"]) and reading.hfu and reading.hfu < 0.98 * mfu:
            told.append(
                "MFU is above HFU: the profile has less FLOPs than the model; the shapes of some matmuls are missing."
            )
    return analysis.with_reading(found, notes=tuple(filter(None, notes)), unknown=tuple(filter(None, told)), **changed)


def _beside_plan(found: Analysis, planned: ExpectedStep, sizes: dict[str, float]) -> dict[str, Any]:
    """What a reading has with its plan; savings only where it is the plan of what was recorded and timed."""
    reading, peak = found.reading, found.roof.peak(found.dtype)
    differs = plan_differs(planned, reading, found, sizes)
    lines = beside(planned, found, reading.groups, sum(part.seconds for part in reading.parts if part.name == "idle"))
    timed = planned.model_flops and peak and reading.step_s and not reading.static
    mfu = planned.model_flops / reading.step_s / peak if timed and planned.model_flops and peak else None
    # what a plan of something else expects is no yardstick
    savings = {} if differs or reading.static else {"savings": _savings(found, lines)}
    if mfu and mfu > 1 and not differs:
        differs = (f"The plan is not of what was recorded: its FLOPs in this time would be an MFU of {mfu:.0%}.",)
    return {
        "beside": lines,
        "plan": planned.request.plan,
        "model": planned.request.model,
        "planned_step_s": planned.seconds,
        "mfu": None if differs else mfu,
        "differs": differs,
        **savings,
    }


def _savings(found: Analysis, lines: tuple[BesideLine, ...] = ()) -> tuple[Saving, ...]:
    meant = None if lines else expected_attention(found)
    return find_savings(found.reading, found, lines, meant)


def _expanded(found: Analysis) -> list[str]:
    """How much of the FLOPs is multiplied for nothing, where grouped matmuls run over all experts."""
    experts = expanded_experts(found.recording, found.roles)
    ran = {one: (found.roles[one].flops or 0.0) * float(found.totals.works[one]) for one in experts}
    if not sum(ran.values()):
        return []
    useful = sum(flops / experts[one] for one, flops in ran.items())
    every, needed = render(sum(ran.values()), "FLOPs"), render(useful, "FLOPs")
    return [
        f"Grouped matmuls ran over all {max(experts.values())} experts for every token: {every} where {needed} are "
        "needed; HFU and the rate of their rows count all of them."
    ]


_GUESSED = (
    "Of {share:.0%} of the device's time nothing names the part of the model or its pass: they are guessed from the "
    "order of kernels, and rows of one part may belong to another. {better}"
)
_NAMED = {
    "JAX/XProf": "The xplane.pb of the same recording names every op.",
    "PyTorch/Kineto": "Record with with_stack=True, or put torch.profiler.record_function around parts.",
    "": "Ranges around parts of the model (NVTX) name them.",
}
"""What a recording needs so that its parts are known, by what wrote it."""


def _unknown(found: Analysis) -> list[str]:
    """What the reading could not tell, in sentences."""
    reading, told = found.reading, []
    if reading.hfu and reading.hfu > 1:
        told.append(
            f"HFU is above 100%: {reading.chip} cannot do that. The recorded times are not those of its kernels, "
            "or it ran elsewhere."
        )
    if reading.attributed_kind < 0.97:
        told.append(f"{1 - reading.attributed_kind:.0%} of the device's time is in ops whose kind is not known.")
    if reading.attributed_section < 0.9:
        told.append(
            f"{1 - reading.attributed_section:.0%} of the device's time is in ops whose part of the model is not known."
        )
    if reading.guessed_section > 0.1:
        told.append(_GUESSED.format(share=reading.guessed_section, better=_NAMED.get(reading.software, _NAMED[""])))
    programs = {op.module.split("(", 1)[0] for op in found.recording.ops if op.module}
    under = sum(group.exposed_s for group in reading.groups if group.section in programs)
    if reading.attributed_section >= 0.9 and under > 0.1 * reading.step_s:
        told.append("Nothing in the profile names parts of a model: ops stand under the name of their program.")
    multiplies = (group for group in reading.groups if group.kind in ("matmul", "attention", "grouped matmul"))
    missing = sum(group.seconds for group in multiplies if group.flops is None)
    if missing > 0.02 * reading.step_s and NO_KERNELS not in reading.notes:
        told.append(
            "The profile has no shapes for some matmuls, so their FLOPs are not known (PyTorch: record_shapes=True)."
        )
    return told
