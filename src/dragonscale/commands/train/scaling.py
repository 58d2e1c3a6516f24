"""`--scaling`: the same job on slices around its own, and where each scheme alone stops scaling."""

from collections.abc import Iterator

from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import ScalingRow
from dragonscale.physics.hardware import Slice
from dragonscale.training.advice.slice_choice import ScalingPoint, SchemeCurve, scaling_points, scheme_curves
from dragonscale.training.search.search import Progress


def scaling_rows(request: TrainRequest, target: Slice, progress: Progress | None) -> Iterator[ScalingRow]:
    """The best plan on a slice and on those around it, with the same batch, smallest first."""
    return map(_scaling_row, scaling_points(request.job, target, progress))


def _scaling_row(point: ScalingPoint) -> ScalingRow:
    assessed = point.assessed
    if assessed is None:
        return ScalingRow(
            str(point.slice),
            point.slice.chips,
            plan=None,
            step_s=None,
            tokens_per_s=None,
            efficiency=None,
            mfu=None,
            bound_by=None,
        )
    return ScalingRow(
        str(point.slice),
        point.slice.chips,
        plan=str(assessed.plan),
        step_s=assessed.step_s,
        tokens_per_s=point.tokens_per_s,
        efficiency=point.efficiency,
        mfu=assessed.mfu,
        bound_by=assessed.bound.label,
        stack=assessed.job.stack.name,
        mfu_of_dtype=assessed.mfu_of_dtype,
    )


def crossovers(request: TrainRequest, target: Slice) -> Iterator[SchemeCurve]:
    """Each scheme alone over the chips of a slice, and from how many on its wires take longer than its compute."""
    return scheme_curves(request.job.on_slice(target))


def crossover_notes(request: TrainRequest, target: Slice) -> list[str]:
    """Where each scheme alone stops scaling, a sentence each."""
    notes = []
    step_tokens = request.job.batch * request.job.sequence
    for curve in crossovers(request, target):
        chips = curve.crossover
        if chips is None:
            notes.append(f"{curve.scheme} alone stays bound by compute up to {curve.points[-1].chips:,} chips.")
        else:
            notes.append(
                f"{curve.scheme} alone is bound by {curve.at_crossover.busiest} from about {chips:,.0f} chips "
                f"({step_tokens / chips:,.0f} tokens a chip)."
            )
    return notes
