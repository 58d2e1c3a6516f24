"""The steps that a run recorded, read as `dscale profile` reads them, with the run's own plan beside them.

The plan is laid beside the profile where the devices are chips that we know: on the slice that was named, or on as many
such chips as ran. On a CPU the planned seconds would be of another machine, and are left out.
"""

from pathlib import Path
from typing import Any

from dragonscale.app.profile.records import ProfileReport
from dragonscale.app.questions.profile import ProfileQuestion
from dragonscale.app.questions.run import RunTrainQuestion
from dragonscale.errors import InputError
from dragonscale.listener import Listener

MOST = 1000


def profile_folder(question: RunTrainQuestion, order: Any) -> str:
    """Where the profile goes: as told, beside the checkpoints, or here; empty where none is asked for."""
    if question.profile is None:
        if question.profile_to:
            raise InputError(
                "--profile-to says where a profile goes; say how many steps to record too, such as --profile 3."
            )
        return ""
    if not 1 <= question.profile <= MOST:
        raise InputError(f"--profile is {question.profile}; record 1 to {MOST} steps.")
    return question.profile_to or str(Path(order.run.checkpoints or ".") / "profile")


def read_profile(order: Any, result: Any, profiler: Any, listener: Listener) -> ProfileReport | None:
    """What the recorded steps say; None where the run ended before there were any."""
    from dragonscale.app.profile.ask import ask
    from dragonscale.runtime.train.planned import chip_of

    if profiler.recorded is None:
        listener.note("The run ended before a step was recorded.")
        return None
    first, last = profiler.recorded
    listener.note(
        f"Steps {first} to {last} are recorded in {profiler.folder}: `dscale profile {profiler.folder}` reads "
        "them again."
    )
    chip = chip_of(result.device_kind)
    if chip is None:
        return ask(ProfileQuestion(profiler.folder), listener)
    run, slice_ = order.run, order.slice or f"{chip.name}:{result.devices}"
    question = ProfileQuestion(
        profiler.folder,
        plan=str(order.plan),
        model=order.model,
        on=slice_,
        batch=f"{run.batch}seq",
        seq=str(run.seq),
        program="train",
        stack="dragonscale",
    )
    return ask(question, listener)
