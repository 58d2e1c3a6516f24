"""What the flags of `dscale simulate` may say, each by itself and beside the others.

A flag that would be ignored is refused: whoever wrote `--swing 0.8` thinks that the rate swings.
"""

import math

from dragonscale.app.questions.flag import fields_of
from dragonscale.app.questions.simulate import SimulateQuestion
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.units import parse

ARRIVALS = ("poisson", "gamma", "diurnal", "at-once")
PERCENTILES = (50, 90, 95, 99)
LIMITS = {
    "cv": (0.0, 100.0),
    "burst": (0.01, 100.0),
    "swing": (0.0, 1.0),
    "speed": (1e-6, 1e6),
    "warmup": (0.0, 0.9),
    "memory_fraction": (0.01, 1.0),
    "replicas": (0, 10_000),
    "prefill_replicas": (1, 10_000),
    "clients": (1, 1_000_000),
    "drafts": (0, 32),
    "queue_limit": (0, 100_000_000),
    "seed": (0, 2**32),
    "max_seqs": (1, 1_000_000),
    "token_budget": (1, 10_000_000),
}
"""The least and the most of every number; a fleet of ten thousand replicas is simulated in minutes."""
_WHAT_FOR = {
    "burst": ("arrivals", "gamma"),
    "swing": ("arrivals", "diurnal"),
    "period": ("arrivals", "diurnal"),
    "cv": ("lengths", "lognormal"),
}
_USUAL = {field.name: field.default for field in fields_of(SimulateQuestion)}


def check_flags(question: SimulateQuestion, prefill: bool = False) -> None:
    """Refuse what cannot be, and what would be ignored; `prefill` says that a plan file has a prefill pool."""
    if question.arrivals not in ARRIVALS:
        raise unknown("kind of arrivals called", question.arrivals, ARRIVALS)
    if question.percentile not in PERCENTILES:
        known = ", ".join(map(str, PERCENTILES))
        raise InputError(f"--percentile is {question.percentile}; targets are for one of {known}.")
    for name, (least, most) in LIMITS.items():
        value = getattr(question, name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise InputError(f"{_flag(name)} is {shorten(value)}; it is from {least:g} to {most:,}.")
    period = parse(question.period, "s", "--period")
    if not 1 <= period <= 1e9:
        raise InputError(f"--period is {shorten(question.period)}; a rate swings over a second or longer, such as 24h.")
    _check_unused(question, prefill)


def _check_unused(question: SimulateQuestion, prefill: bool) -> None:
    given = {name for name, usual in _USUAL.items() if getattr(question, name) != usual}
    for name, (flag, word) in _WHAT_FOR.items():
        if name in given and getattr(question, flag) != word:
            raise InputError(f"{_flag(name)} is for {_flag(flag)} {word}; leave it out, or add that.")
    if "speed" in given and not question.trace:
        raise InputError("--speed is how fast a --trace is replayed; leave it out, or give a trace.")
    if "prefill_replicas" in given and not question.prefill_on and not prefill:
        raise InputError("--prefill-replicas needs --prefill-on, the slice of one prefill replica.")
    if "arrivals" in given and question.clients is not None:
        raise InputError("--clients send their next request when they have their output; leave --arrivals out.")
    if question.arrivals == "at-once" and question.rate:
        raise InputError("--arrivals at-once has all requests come at the start; leave --rate out.")
    told = [name for name in ("prompt", "output", "lengths", "prefixes", "arrivals") if name in given]
    if question.trace and told:
        raise InputError(f"A trace says what its requests are like; leave {_flag(told[0])} out.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
