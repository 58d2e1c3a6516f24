"""What an answer is about: its slice, as a record and as a command writes it, and the verdict on its first plan."""

from dragonscale.commands.given import slice_of
from dragonscale.commands.train.train_question import TrainAsked
from dragonscale.commands.train.train_records import Neighbour, TrainReport
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.catalogue import chip_path
from dragonscale.training.cost.evaluation import Verdict, judge_one


def chosen_slice(asked: TrainAsked, report: TrainReport) -> Slice:
    """The slice that a report is about, whatever file its chip came from."""
    if asked.job.slice is not None and str(asked.job.slice) == report.slice:
        return asked.job.slice
    return slice_of(report.slice, (chip for chip, _ in asked.job.targets))


def first_verdict(asked: TrainAsked, report: TrainReport) -> Verdict:
    """The verdict on the first plan of a report; judged again where the report comes from elsewhere."""
    if asked.answered is not None:
        return asked.answered.assessed.verdict
    return judge_one(asked.job.on_slice(chosen_slice(asked, report)), report.plans[0].plan)


def written_slice(asked: TrainAsked, report: TrainReport | Neighbour) -> str:
    """The slice as a command reads it: with the path of its chip's file, where it has one."""
    name, _, topology = report.slice.rpartition(":")
    for text, (chip, _) in asked.targets.items():
        path = chip_path(text)
        if chip.name == name and path:
            return f"{path}:{topology}"
    return report.slice
