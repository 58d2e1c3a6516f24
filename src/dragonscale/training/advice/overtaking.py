"""Sentences about where one choice overtakes another: in time by a number of the hardware or the batch, in dollars by
the price of a chip."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.training.advice.crossing import BATCH, CAPACITY, Choice, Overtaking, crossings
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import change

SHOWN = 3
MIN_CHANGE = 1.1
PCIE = 16e9
"""Bytes a second of a chip that all-reduces over PCIe 4.0 through the host: half of the 32 GB/s of 16 lanes, which go
up and down through the root complex."""


def overtaking(one: Choice, other: Choice, names: tuple[str, str], shown: int = SHOWN) -> list[str]:
    """At what the slower of two choices becomes the faster one, the smallest changes first.

    `names` are those of the first and the second.
    """
    times = [first_number(judge_one(job, plan).seconds) / job.tokens for job, plan in (one, other)]
    found = crossings(one, other)
    lacking = [row for row in found if row.title == CAPACITY]
    if lacking:  # a plan that does not fit is no choice yet, however fast it would be
        row = lacking[0]
        start = f"{names[1]} fits from {render(row.value, 'bytes')} of memory a chip on"
        faster = f"would then be {times[0] / times[1]:.2f}x as fast as {names[0]}"
        return [f"{start} ({render(row.now, 'bytes')} now) and {faster}."]
    ahead, behind = (names[1], names[0]) if times[1] < times[0] else names
    return [f"{behind} overtakes {ahead} {', or '.join(map(_where, found[:shown]))}."] if found else []


Condition = Callable[[Job, Plan], Job]


def conditions(one: Choice, other: Choice, names: tuple[str, str]) -> list[str]:
    """How the order of two plans on one slice changes where the collectives of sharded state are not overlapped, and
    where chips of a node are joined by PCIe; a sentence each where that makes a tenth of difference or more."""
    job = one[0]
    if job.slice.chip.name != other[0].slice.chip.name or job.slice.chips == 1:
        return []

    def ratio(condition: Condition) -> float:
        """Seconds of the second plan over those of the first."""
        first_s, second_s = (first_number(judge_one(condition(*side), side[1]).seconds) for side in (one, other))
        return second_s / first_s

    now = ratio(lambda side, _: side)
    sentences: list[str] = []
    for what, condition in _conditions(job):
        changed = ratio(condition)
        if max(changed / now, now / changed) < MIN_CHANGE:
            continue
        turned = " instead" if (changed > 1) != (now > 1) else ""
        pace = f"{max(changed, 1 / changed):.2g}x" if abs(changed - 1) > 0.5 else f"{abs(changed - 1):.0%}"
        sentences.append(f"{what} {names[1]} would be {pace} {'slower' if changed > 1 else 'faster'}{turned}.")
    return sentences


def _conditions(job: Job) -> Iterator[tuple[str, Condition]]:
    """Conditions that public runs differ in, each with the job of a plan under it."""

    def not_overlapped(side: Job, plan: Plan) -> Job:
        if plan.zero == 0 or plan.fsdp == 1:  # whole replicas are reduced under the backward pass by every trainer
            return side
        return replace(side, stack=change(side.stack, "overlap", gradient=0.0, weight=0.0))

    yield "Where ZeRO's gathers and scatters are not overlapped (as in nanotron)", not_overlapped
    chip = job.slice.chip
    paths = [path for path in chip.facts if path.startswith("levels.node.") and path.endswith(".bandwidth")]
    if chip.kind == "gpu" and paths and float(chip.facts[paths[0]].value) > PCIE:
        slow = chip.with_facts(**dict.fromkeys(paths, PCIE))

        def over_pcie(side: Job, _: Plan) -> Job:
            return replace(side, slice=replace(side.slice, chip=slow))

        yield f"Over PCIe ({render(PCIE, 'bytes/s')} a chip) in place of {chip.name}'s links", over_pcie


def _where(row: Overtaking) -> str:
    if row.title == BATCH:
        how = "from" if row.value > row.now else "down to"
        return f"{how} a batch of {row.value:,.0f} tokens ({row.now:,.0f} now)"
    side = "above" if row.value > row.now else "below"
    what = "" if row.title == row.unit else f" of {row.title}"
    return f"{side} {render(row.value, row.unit)}{what} ({render(row.now, row.unit)} now)"


def price_where(name: str, best: str, usd_per_mtok: float, tokens_per_s_per_chip: float, price: float | None) -> str:
    """The price of a chip-hour below which tokens are cheaper than the best costs: dollars a token are the price over
    the tokens of an hour.

    >>> price_where("v5p", "h100", 0.5, 1000, 4.2)
    'v5p costs less than h100 below $1.80 a chip-hour ($4.20 now).'
    """
    level = usd_per_mtok * tokens_per_s_per_chip * 3600 / 1e6
    now = "no price is known" if price is None else f"${price:.2f} now"
    return f"{name} costs less than {best} below ${level:.2f} a chip-hour ({now})."
