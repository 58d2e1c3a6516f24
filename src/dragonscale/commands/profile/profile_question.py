"""What `dscale profile` was asked, read at the edge: the file, the chip it ran on, and the plan to lay beside it.

A plan is read as `dscale verify` reads it: written out or from a file, with model, slice, batch and length from flags
or the file.
"""

from dataclasses import dataclass
from typing import Any

from msgspec import structs

from dragonscale.commands.asked_chips import asked_chips, profile_notes
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.verify import ProfileQuestion, VerifyQuestion
from dragonscale.commands.verify.verify_question import read_question as read_plan
from dragonscale.errors import InputError, shorten
from dragonscale.evidence.profiles.kineto_tracks import NO_KERNELS
from dragonscale.evidence.profiles.recording import DeviceText, Recording
from dragonscale.evidence.verify.records import Request
from dragonscale.physics.hardware import Chip, load_chip, parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.physics.hardware.driver_names import chip_named, nearest_chip

# Ops that `--top` may list.
MAX_TOP = 1000
# Flags that say of a plan what they say to `dscale verify`.
_OF_THE_PLAN = ("model", "batch", "seq", "program", "stack", "assume", "family")


@dataclass(frozen=True)
class ProfileAsked:
    """The flags understood. `chip` is that of `--on`; `request` and the software are None and empty without a plan."""

    question: ProfileQuestion
    path: str
    chip: Chip | None
    request: Request | None
    stack: str
    engine: str
    notes: tuple[str, ...] = ()


def read_question(question: ProfileQuestion) -> ProfileAsked:
    """Check every flag; what cannot be used is refused in one sentence, before the file is read."""
    path, on = written(question.trace).strip(), question.on
    if not path:
        raise InputError("Say which profile to read, such as profile.xplane.pb or trace.json.gz.")
    if not 1 <= question.top <= MAX_TOP:
        raise InputError(f"--top is {question.top}; list 1 to {MAX_TOP} ops.")
    if question.step is not None and question.step < 0:
        raise InputError(f"--step is {question.step}; steps are counted from 0.")
    chip = _chip(on)
    if not written(question.plan):
        for name in ("batch", "seq", "program", "stack", "engine", "profile"):
            if getattr(question, name):
                raise InputError(f"--{name} says what --plan is of; give the plan too, such as --plan fsdp=8.")
        return ProfileAsked(question, path, chip, None, "", "")
    where = on
    if isinstance(on, str) and is_chip(on):
        # a chip alone stands for a slice of one
        where = f"{written(on)}:1"
    same = {name: getattr(question, name) for name in _OF_THE_PLAN}
    plan = read_plan(VerifyQuestion(question.plan, on=where, **same))
    request = structs.replace(plan.request, slice=asked_chips(plan.request.slice, "", question.profile))
    planned = parse_slice(request.slice).chip
    # the plan's chip where it carries a kernel profile
    if chip is None or planned.kernels:
        chip = planned
    engine = question.engine.strip().lower() or "jax-program"
    notes = (*plan.notes, *profile_notes([planned]))
    return ProfileAsked(question, path, chip, request, plan.stack, engine, notes)


def _chip(on: Any) -> Chip | None:
    """The chip of `--on`: a chip alone, or a slice of it."""
    if not on:
        return None
    if isinstance(on, Chip):
        return on
    text = written(on)
    if is_chip(text):
        return load_chip(text)
    return parse_slice(on).chip


def the_chip(understood: ProfileAsked, recording: Recording) -> tuple[Chip | None, str]:
    """The chip that rooflines are of, and what is not known about it; a profile of another chip than was said is
    refused."""
    # the first accelerator; a host alone is one where there is none
    device = min(recording.devices, key=lambda device: device.kind == "cpu", default=DeviceText("", ""))
    # times of the host are no times of a chip
    if NO_KERNELS in recording.notes:
        return None, ""
    name_of_device = chip_named(device.name, device.memory_bytes)
    if understood.chip is not None:
        if (
            name_of_device
            and understood.chip.kin != name_of_device
            and load_chip(name_of_device).title != understood.chip.title
        ):
            raise InputError(
                f"The profile was recorded on {shorten(device.name)} ({name_of_device}), and --on or the plan says "
                f"{understood.chip.name}; leave out --on, or give --on {name_of_device}."
            )
        if (
            device.kind == "cpu"
            and understood.chip.kind in ("gpu", "tpu")
            and is_chip(understood.chip.name.split("+")[0])
        ):
            raise InputError(
                f"The profile was recorded on a CPU ({shorten(device.name)}), and --on or the plan says "
                f"{understood.chip.name}; leave out --on, or give a chip file of that CPU."
            )
        return understood.chip, ""
    if name_of_device:
        return load_chip(name_of_device), ""
    name = "the device"
    if device.name:
        name += f" {shorten(device.name)}"
    if device.kind == "cpu":
        return None, "A CPU has no roofline here: achieved fractions are left out."
    nearest = nearest_chip(device.name)
    if nearest:
        return (
            None,
            f"{shorten(device.name)} is not in the catalogue; the nearest chip is {nearest}: give --on {nearest} to "
            "have its rooflines, or a TOML file with the device's own rates.",
        )
    return None, f"The chip is not known from {name}: give --on to have rooflines."
