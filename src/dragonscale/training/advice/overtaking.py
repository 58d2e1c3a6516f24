"""Sentences about where one choice overtakes another: in time by a number of the hardware or the batch, in dollars by
the price of a chip."""

from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.training.advice.crossing import BATCH, CAPACITY, Choice, Overtaking, crossings
from dragonscale.training.cost.evaluation import judge_one

SHOWN = 3


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
