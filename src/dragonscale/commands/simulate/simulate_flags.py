"""What the flags of `dscale simulate` may say, each by itself and beside the others.

A flag that would be ignored is refused: whoever wrote `--swing 0.8` thinks that the rate swings.
"""

from collections.abc import Collection, Sequence

from dragonscale.commands.questions.flag import check_limits, fields_of
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.traffic_flags import CLASS_FLAGS, has_classes
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.units import parse

ARRIVALS = ("poisson", "gamma", "diurnal", "at-once")

# Percentiles that targets may be for.
PERCENTILES = (50, 90, 95, 99)

# Longest period of a rate that swings.
MAX_PERIOD_S = 1e9

# Flags that have a meaning with one value of another flag only.
_NEEDED_VALUE = {
    "burst": ("arrivals", "gamma"),
    "swing": ("arrivals", "diurnal"),
    "period": ("arrivals", "diurnal"),
    "cv": ("lengths", "lognormal"),
}
_DEFAULTS = {field.name: field.default for field in fields_of(SimulateQuestion)}


def check_flags(question: SimulateQuestion, prefill: bool = False) -> None:
    """Refuse what cannot be, and what would be ignored; `prefill` says that a plan file has a prefill pool."""
    if question.arrivals not in ARRIVALS:
        raise unknown("kind of arrivals called", question.arrivals, ARRIVALS)
    if question.percentile is not None and question.percentile not in PERCENTILES:
        allowed = ", ".join(map(str, PERCENTILES))
        raise InputError(f"--percentile is {question.percentile}; targets are for one of {allowed}.")
    check_limits(question)
    period_s = parse(question.period, "s", "--period")
    if not 1 <= period_s <= MAX_PERIOD_S:
        raise InputError(f"--period is {shorten(question.period)}; a rate swings over a second or longer, such as 24h.")
    _check_unused(question, prefill)


def _check_unused(question: SimulateQuestion, prefill: bool) -> None:
    """Refuse flags that the others leave without a meaning."""
    changed = {name for name, default in _DEFAULTS.items() if getattr(question, name) != default}
    has_prefill = question.prefill_on or prefill
    for name, (flag, value) in _NEEDED_VALUE.items():
        if name in changed and getattr(question, flag) != value:
            raise InputError(f"{_flag(name)} is for {_flag(flag)} {value}; leave it out, or add that.")
    if "speed" in changed and not question.trace:
        raise InputError("--speed is how fast a --trace is replayed; leave it out, or give a trace.")
    for name in ("prefill_replicas", "prefill_autoscale"):
        if name in changed and not has_prefill:
            raise InputError(f"{_flag(name)} needs --prefill-on, the slice of one prefill replica.")
    if "arrivals" in changed and question.clients is not None:
        raise InputError("--clients send their next request when they have their output; leave --arrivals out.")
    if question.arrivals == "at-once" and question.rate:
        raise InputError("--arrivals at-once has all requests come at the start; leave --rate out.")
    if question.trace:
        flags = ("prompt", "output", "lengths", "prefixes", "arrivals")
        _refuse(changed, flags, "A trace says what its requests are like")
    if has_classes(question):
        flags = ("clients", "trace", "arrivals")
        if not question.use_case:  # whose own numbers these flags change
            flags += CLASS_FLAGS
        _refuse(changed, flags, "Classes of traffic each say what comes and what it must get")
    if question.deadline and question.arrivals != "at-once":
        raise InputError("--deadline is for requests that come at once; add --arrivals at-once, or give --e2e p99:8h.")
    if question.images and question.trace:
        raise InputError("A trace has no images in it; leave --images out.")
    if question.users is not None and not question.use_case:
        raise InputError("--users are those of a use case; add --use-case chat.")


def _refuse(changed: Collection[str], flags: Sequence[str], why: str) -> None:
    """Refuse the first of some flags that is given."""
    for name in flags:
        if name in changed:
            raise InputError(f"{why}; leave {_flag(name)} out.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
