"""The best plans for what was asked, or the judgement of the one plan given."""

from dragonscale.reports.train.question import TrainAsked
from dragonscale.reports.train.records import TrainReport
from dragonscale.reports.train.report import nearest_sentence, search_report
from dragonscale.training.evaluation import Job
from dragonscale.training.search import Progress, search


def best_report(asked: TrainAsked, job: Job, progress: Progress | None = None) -> TrainReport:
    """The best plans on one slice; without any, the notes say why."""
    found = search(job, asked.space, asked.question.top, progress)
    report = search_report(job, found, asked.space.words, asked.tokens)
    if not found.best:
        report.notes.append(nearest_sentence(job, found.nearest, found))
    return report
