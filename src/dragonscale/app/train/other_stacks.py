"""What the other stacks that people run there would give for the same job, where no stack was named."""

from dragonscale.app.train.records import SliceRow, StackRow
from dragonscale.physics.units import render
from dragonscale.training.evaluation import Job, on_other_stacks
from dragonscale.training.inverse import quick
from dragonscale.training.keeper import Candidate
from dragonscale.training.plan import short_plan
from dragonscale.training.search import search
from dragonscale.training.simplicity import leaves_room
from dragonscale.training.space import Space

DIFFERS = 0.03
"""Stacks this near to each other are told apart by no prediction."""


def stack_row(job: Job, best: Candidate) -> StackRow:
    """A stack with its recommended plan."""
    mfu = job.model_flops / (best.seconds * job.slice.flops)
    tight = not leaves_room(best.hbm_bytes, job.slice.chip.visible)
    return StackRow(job.stack.name, short_plan(best.plan), best.seconds, mfu, tight)


def other_stacks(job: Job, space: Space, slack: float) -> list[StackRow]:
    """The recommended plan of each other stack that people run there, of a smaller space; none where the stack was
    named."""
    found = []
    for there in on_other_stacks(job, space.words.dtype):
        best = search(there, quick(space), 1, slack=slack).best
        found += [stack_row(there, one) for one in best[:1]]
    return found


def other_plans_note(others: list[StackRow]) -> list[str]:
    """What is said where the usual stack has no plan and another one has."""
    return [
        (
            f"With --stack {one.stack} there is a plan: {one.plan}, {render(one.step_s, 's')} a step, MFU "
            f"{one.mfu:.1%}{', which leaves little memory' if one.tight else ''}."
        )
        for one in others
    ]


def slices_note(rows: list[SliceRow]) -> list[str]:
    """The slices that another stack would make cheaper or dearer by more than a few percent, in a line."""
    found = []
    for row in rows:
        for one in (other for other in row.others if not other.tight):
            change = one.step_s / row.step_s - 1 if row.step_s else 0.0
            if abs(change) > DIFFERS:
                found.append(f"{row.slice} with {one.stack} {_worth(row, 1 + change)} ({change:+.0%})")
    return [f"With the other stack that people run there: {'; '.join(found)}."] if found else []


def _worth(row: SliceRow, times: float) -> str:
    """What a slice costs, or its step, so many times over."""
    if row.cost_usd is not None:
        return f"${row.cost_usd * times:,.0f}"
    if row.usd_per_mtok is not None:
        return f"${row.usd_per_mtok * times:.4f}/Mtok"
    return render((row.step_s or 0.0) * times, "s")
