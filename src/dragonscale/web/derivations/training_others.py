"""Other plans beside the one that is judged: what would help it, how it scales, what explains a measured step."""

from typing import TYPE_CHECKING

from dragonscale.errors import InputError
from dragonscale.web.amounts import amount, count, share
from dragonscale.web.derivations.pieces import Piece, facts, row, step

if TYPE_CHECKING:
    from dragonscale.web.derivations.training import TrainNumbers

JUDGED = {"text": "Judged by the planner in the same way as the plan itself.", "url": ""}


def efficiency_facts(of: "TrainNumbers", number: str, text: str) -> Piece:
    """How much a chip does here of what it does on the slice that others are held against."""
    one, value = of.one, float(text)
    rows = [
        row("tokens/s per chip here", count(one.tokens_per_s_per_chip, "tokens_per_s_per_chip")),
        row("on the first slice of the curve", count(one.tokens_per_s_per_chip / value if value else 0.0)),
    ]
    shown = share(value, number)
    sentence = f"Tokens per second of a chip on {of.job.slice} over those on the first slice of the curve."
    return facts(
        "Scaling efficiency",
        sentence,
        shown,
        steps=[step("Put together from", rows, shown)],
        error=of.band,
        sources=[JUDGED],
        docs=("training", "other-slices"),
    )


def helps_facts(of: "TrainNumbers") -> Piece:
    helps = of.one.helps
    if not helps:
        raise InputError("Nothing was found that would help this plan.")
    rows = [row(one.change, share(one.gain, "helps") | {"text": f"{one.gain:+.0%}"}, one.needs) for one in helps]
    sentence = "Tokens per second with one thing changed, over what they are: each change judged as a plan of its own."
    return facts(
        "What would help",
        sentence,
        rows[0]["number"],
        steps=[step("Judged", rows)],
        more=False,
        error=of.band,
        sources=[JUDGED],
        docs=("training", "what-is-recommended"),
    )


def measured_facts(of: "TrainNumbers") -> Piece:
    found = of.report.measured
    if found is None:
        raise InputError("No measured step was given.")
    rows = [row(one.cause, amount(one.step_s, "s", "measured"), one.look) for one in found.suspects]
    sentence = f"Steps that the planner expects if something was otherwise than planned. {found.text}"
    return facts(
        "Against the measured step",
        sentence,
        amount(found.step_s, "s", "measured"),
        more=False,
        steps=[step("Suspects", rows)],
        sources=[JUDGED],
        docs=("validation-training", "your-own-run"),
    )
