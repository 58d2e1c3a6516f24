"""What an answer is about: its slice, as a record and as a command writes it, and the verdict on its first plan."""

from dragonscale.commands.given import slice_of
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import Neighbour, TrainReport
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.catalogue import chip_path
from dragonscale.training.cost.evaluation import Verdict, judge_one


def chosen_slice(request: TrainRequest, report: TrainReport) -> Slice:
    """The slice that a report is about, whatever file its chip came from."""
    if request.job.slice is not None and str(request.job.slice) == report.slice:
        return request.job.slice
    # the fewest chips or the best of several slices was asked for: the answer names it
    return slice_of(report.slice, (chip for chip, _ in request.job.targets))


def first_verdict(request: TrainRequest, report: TrainReport) -> Verdict:
    """The verdict on the first plan of a report; judged again where the report comes from elsewhere."""
    if request.answered is not None:
        return request.answered.assessed.verdict
    return judge_one(request.job.on_slice(chosen_slice(request, report)), report.plans[0].plan)


def written_slice(request: TrainRequest, report: TrainReport | Neighbour) -> str:
    """The slice as a command reads it: with the path of its chip's file, where it has one."""
    # `v5p:8x16x16`: the chip, with the changes made to it, and the topology
    name, _, topology = report.slice.rpartition(":")
    for text, (chip, _) in request.targets.items():
        path = chip_path(text)
        if chip.name == name and path:
            return f"{path}:{topology}"
    return report.slice
