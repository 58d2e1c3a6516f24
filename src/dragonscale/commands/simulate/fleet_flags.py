"""Flags of `dscale simulate` about replicas: drafts, failures, growing and shrinking."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dragonscale.commands.given import comma_list
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse, parse_count
from dragonscale.serving.steady.speculation import read_acceptance
from dragonscale.simulation.fleet import Autoscale, Failure, Faults
from dragonscale.simulation.fleet_sizing.traffic_classes import read_parts

# How long a signal must ask for fewer replicas: the Horizontal Pod Autoscaler's window for scaling down.
HOLD_S = 300.0

# How long a replica that died by chance is away, and how long a new one starts, unless it is said.
DOWN_S = 600.0
STARTUP_S = 60.0

# How often an autoscaler looks, unless it is said.
EVERY_S = 10.0

# What an autoscaler may look at, as the flag names it.
SIGNALS = ("target", "queue", "kv", "ttft", "schedule")

_FAILURE = re.compile(r"(?P<replica>\d{1,6})@(?P<at>[^+@]+)(?:\+(?P<down>[^+@]+))?")


def read_drafts(question: SimulateQuestion) -> tuple[int, tuple[float, ...]]:
    """Tokens to draft at a time, and how often each is accepted; as many tokens as there are probabilities, where the
    number is not given."""
    if not question.accept:
        if question.drafts or question.draft:
            raise InputError("--drafts and --draft need --accept, the probability that a draft is right (0.7, say).")
        return 0, (0.0,)
    chances = read_acceptance(question.accept)
    if not question.drafts and len(chances) == 1:
        raise InputError("--accept with one probability needs --drafts, the tokens to draft at a time (3, say).")
    return question.drafts or len(chances), chances


def read_failures(text: str) -> tuple[tuple[Failure, ...], Faults | None]:
    """`3@100s+60s`: replica 3 dies at 100 s and is back a minute later; `mtbf=4h,down=10min`: each by chance. Of
    either `notice=30s` tells that it comes.

    >>> read_failures("3@100s+1min")[0]
    (Failure(replica=3, at_s=100.0, for_s=60.0, pool='serve', notice_s=0.0),)
    >>> read_failures("mtbf=4h,down=10min,notice=30s")[1]
    Faults(mtbf_s=14400.0, for_s=600.0, notice_s=30.0)
    """
    meanings = {"mtbf": "the mean time between failures", "down": "the time a replica is away", "notice": "the notice"}
    times: dict[str, float] = {}
    failures: list[Failure] = []
    for part in comma_list(text):
        name, equals, value = part.partition("=")
        if equals and name in meanings:
            times[name] = parse(value, "s", meanings[name])
        else:
            failures.append(_read_failure(part))
    if "down" in times and "mtbf" not in times:
        raise InputError(f"--fail is {shorten(text)}; down belongs to mtbf, as in mtbf=4h,down=10min.")
    notice_s = times.get("notice", 0.0)
    faults = None
    if "mtbf" in times:
        faults = Faults(times["mtbf"], times.get("down", DOWN_S), notice_s)
    return tuple(replace(failure, notice_s=notice_s) for failure in failures), faults


def _read_failure(text: str) -> Failure:
    match = _FAILURE.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"--fail is {shorten(text)}; write REPLICA@TIME or REPLICA@TIME+DURATION, such as 3@100s+60s, or mtbf=4h."
        )
    down_s = parse(match["down"], "s", "the time a replica is away") if match["down"] else math.inf
    return Failure(int(match["replica"]), parse(match["at"], "s", "the time of a failure"), down_s)


def read_autoscale(text: str, flag: str = "--autoscale") -> Autoscale:
    """`2..16,target=24,startup=90s`: replicas from 2 to 16, as many as keep 24 requests on each. Instead of `target`:
    `queue=4` requests that wait on each, `kv=0.7` of its cache, `ttft=500ms`, or `schedule=8h:16/20h:4`.

    >>> read_autoscale("2..16,target=24").most
    16
    >>> read_autoscale("2..16,ttft=500ms").on, read_autoscale("2..16,schedule=8h:16/20h:4").schedule
    ('ttft', ((28800.0, 16), (72000.0, 4)))
    """
    readers: dict[str, Callable[[str], Any]] = {
        "target": lambda value: float(parse_count(value, "the target")),
        "queue": float,
        "kv": float,
        "ttft": lambda value: parse(value, "s", "ttft"),
        "schedule": _schedule,
        "hold": lambda value: parse(value, "s", "hold"),
        "startup": lambda value: parse(value, "s", "startup"),
        "every": lambda value: parse(value, "s", "every"),
    }
    wanted = "LEAST..MOST,target=REQUESTS, such as 2..16,target=24"
    (least, most), values = read_parts(flag, text, r"(\d{1,6})\.\.(\d{1,6})", wanted, readers)
    signals = [name for name in SIGNALS if name in values]
    if not signals:
        raise InputError(f"{flag} is {shorten(text)}, without the requests per replica to aim at; add target=24.")
    if len(signals) > 1:
        raise InputError(f"{flag} has both {signals[0]} and {signals[1]}; an autoscaler looks at one of them.")
    signal = signals[0]
    on_requests = signal in ("target", "schedule")
    return Autoscale(
        least,
        most,
        target=1.0 if signal == "schedule" else values[signal],
        startup_s=values.get("startup", STARTUP_S),
        every_s=values.get("every", EVERY_S),
        on="requests" if on_requests else signal,
        hold_s=values.get("hold", 0.0 if on_requests else HOLD_S),
        schedule=values.get("schedule", ()),
    )


def _schedule(text: str) -> tuple[tuple[float, int], ...]:
    """`8h:16/20h:4`: sixteen replicas from eight in the morning, four from eight in the evening."""
    pairs = (part.partition(":") for part in text.split("/"))
    return tuple((parse(at, "s", "a time of the schedule"), int(count)) for at, _, count in pairs)
