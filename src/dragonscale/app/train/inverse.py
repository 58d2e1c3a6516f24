"""The planner asked backwards: the fewest chips, the cheapest part of a slice, the largest batch or model."""

from dragonscale.app.questions.flag import written
from dragonscale.app.train.question import TrainAsked
from dragonscale.app.train.records import TrainReport
from dragonscale.app.train.report import best_report, plan_report, workload_of
from dragonscale.errors import InputError, shorten
from dragonscale.models.transformer import count_parameters
from dragonscale.training.evaluation import Job
from dragonscale.training.inverse import Fit, fewest_chips, fits, largest_batch, largest_model
from dragonscale.training.scaling import parts_of, slice_sizes
from dragonscale.training.search import Progress


def _of_fit(asked: TrainAsked, fit: Fit, sentence: str, progress: Progress | None) -> TrainReport:
    """A full report on the slice that was found."""
    report = best_report(asked, fit.job, progress)
    report.notes.append(sentence)
    return report


def _nothing(asked: TrainAsked, job: Job, sentence: str) -> TrainReport:
    work = workload_of(job, asked.space.words, asked.tokens)
    return TrainReport(asked.model.name, written(asked.question.on), work, 0, 0.0, [], 0, {}, [], [sentence])


def fewest_report(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    """`--on h100`: the smallest slice that holds the job, or meets the deadline."""
    chip = asked.chip
    assert chip is not None
    job = asked.job(slice_sizes(chip, 10**6)[0])
    fit = fewest_chips(job, chip, asked.space, asked.deadline, asked.tokens, progress)
    goal = "hold the job" if asked.deadline is None else f"meet the deadline of {asked.question.deadline}"
    if fit is None:
        return _nothing(asked, job, f"No slice of {chip.title} that was tried can {goal}.")
    return _of_fit(asked, fit, f"{fit.job.slice} is the smallest slice of {chip.title} that can {goal}.", progress)


def cheapest_part(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    """`--rank cost`: the slice or a part of it, whichever costs least for each token."""
    job = asked.job()
    pieces = [*parts_of(job.slice), job.slice]
    every = [fit for fit in fits(job, pieces, asked.space, None, progress) if fit.roomy]
    if not every:
        return best_report(asked, job, progress)
    best = min(every, key=lambda fit: fit.best.seconds * fit.job.slice.chips)
    spent = best.best.seconds * best.job.slice.chips / 3600 / (best.job.tokens / 1e6)
    price = job.slice.chip.price
    worth = f"${spent * price:.4f}" if price is not None else f"{spent:.5f} chip-hours"
    sentence = f"Of {job.slice} and its parts, {best.job.slice} costs least: {worth} for a million tokens."
    return _of_fit(asked, best, sentence, progress)


def largest_report(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    """`--largest batch` or `--largest model`."""
    if asked.piece is None:
        raise InputError(f"--largest needs a slice to fit; --on is {shorten(asked.question.on)}, write e.g. h100:64.")
    job, batches = asked.job(), asked.question.largest == "batch"
    fit = (largest_batch if batches else largest_model)(job, asked.space, progress)
    if fit is None:
        return best_report(asked, job, progress)
    if batches:
        held = f"{fit.job.batch:,} sequences ({fit.job.tokens:,} tokens)"
        sentence = (
            f"At most {held} go through {job.slice} in one pass with room in memory; larger batches take several."
        )
    else:
        held = f"{fit.job.model.n_layers} layers and {count_parameters(fit.job.model).total / 1e9:,.0f}B parameters"
        sentence = f"The deepest {asked.model.name} that trains on {job.slice} has {held}."
    report = plan_report(fit.job, fit.best.plan, asked.tokens)
    work = workload_of(fit.job, asked.space.words, asked.tokens)
    return TrainReport(fit.job.model.name, str(job.slice), work, 0, 0.0, [report], 1, {}, [], [sentence])
