"""The same job on another chip: `--codesign` makes its numbers better one by one, and where `--set` changes them, the
chip as it is stands beside the answer."""

from dataclasses import replace

from dragonscale.commands.train.plans import neighbour_row
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import ChangeRow, Codesign, Neighbour
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.hardware.changes import PROFILE, split_changes
from dragonscale.physics.units import render
from dragonscale.training.advice.better_chip import NO_GAIN, BetterChip, Improvement, better_chip, nearest_rival
from dragonscale.training.advice.codesign import knobs
from dragonscale.training.advice.overtaking import overtaking
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.search.search import Progress
from dragonscale.training.search.stack_search import search_stacks


def unchanged(request: TrainRequest, target: Slice, progress: Progress | None) -> Neighbour | None:
    """The same job on the chip as it is, where numbers of it were changed (`h100+nvlink=2x`): the given plan, or the
    best there. None where nothing was changed."""
    written = next((text for text, (chip, _) in request.targets.items() if chip.name == target.chip.name), None)
    name = written or target.chip.name
    # a slice is written CHIP:TOPOLOGY, a chip alone has no topology to cut off
    chip_name, changes = split_changes(name.rpartition(":")[0] or name)
    profiles = [change for change in changes if change.startswith(f"{PROFILE}=")]
    if len(profiles) == len(changes):  # a profile of its kernels is no change of the chip
        return None
    chip = load_chip("+".join((chip_name, *profiles)))
    job = request.job.on_slice(replace(target, chip=chip))
    plan = request.job.plan
    if plan is None:
        result = search_stacks(job, request.job.space, 1, progress, request.job.slack)[0]
        return neighbour_row(result.job, result.best) if result.best else None
    step_s = float(judge_one(job, plan).seconds)
    mfu = job.model_flops / (step_s * job.slice.flops)
    return Neighbour(str(job.slice), job.batch, short_plan(plan), step_s, mfu)


def codesign_report(request: TrainRequest, target: Slice, rivals: list[Plan], progress: Progress | None) -> Codesign:
    """Each number of the chip a tenth better, the smallest change that removes the largest loss, and where another plan
    overtakes; `rivals` are other good plans."""
    job = request.job.on_slice(target)
    better = better_chip(request.job, job, progress)
    plan = better.assessed.plan
    overtakes: list[str] = []
    rival = nearest_rival(plan, rivals)
    if rival is not None:
        # at what bandwidths and batches the order of the two plans turns
        overtakes = overtaking((job, plan), (job, rival), (short_plan(plan), short_plan(rival)))
    return Codesign(list(map(_change_row, better.improvements)), _removal(better), overtakes)


def _change_row(improvement: Improvement) -> ChangeRow:
    change = improvement.change
    if improvement.gain < NO_GAIN:
        why = "nothing"
    elif improvement.same_plan:
        why = "same plan"
    else:
        why = str(change.plan)
    return ChangeRow(
        f"10% more {change.knob.title}",
        ",".join(change.knob.paths),
        change.factor,
        step_s=change.seconds,
        faster=improvement.gain,
        why=why,
        doubled=improvement.doubled_gain,
    )


def _removal(better: BetterChip) -> str:
    """The smallest change that takes the largest loss out of the way."""
    if not better.loss:
        return (
            "Nothing but work on the chips themselves takes more than 2% of the step; only more FLOP/s and more HBM "
            "bandwidth help."
        )
    gone = f"{better.loss} under 2% of the step"
    change = better.removal
    if change is None:
        names = ", ".join(knob.title for knob in knobs(better.assessed.job.slice))
        return f"No single number of the chip ({names}), raised up to eight times, brings {gone}."
    before, after = render(better.assessed.step_s, "s"), render(change.seconds, "s")
    return f"{change.factor:g} times the {change.knob.title} brings {gone}: {before} becomes {after}."
