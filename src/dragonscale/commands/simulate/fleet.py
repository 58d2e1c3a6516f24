"""The replicas of `dscale simulate` (drafts, prefixes on the host, what comes, goes and dies), and their traffic."""

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale import simulation as sim
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.classes import (
    ClassTable,
    arrivals_of,
    has_classes,
    means_of,
    read_classes,
    tokens_of,
)
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models import load_model
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.serving.iteration.deployment import Deployment, deploy
from dragonscale.serving.steady.speculation import head_part, read_acceptance
from dragonscale.simulation.deployed import pool_for
from dragonscale.simulation.distributions import Arrivals, Lengths
from dragonscale.simulation.trace_files import recorded_room
from dragonscale.simulation.traffic import PLAIN


def _drafts(question: SimulateQuestion) -> tuple[int, tuple[float, ...]]:
    """Tokens to draft, and how often each is right; as many as chances are given, where the number is not said."""
    if not question.accept:
        if question.drafts or question.draft:
            raise InputError("--drafts and --draft need --accept, the probability that a draft is right (0.7, say).")
        return 0, (0.0,)
    chances = read_acceptance(question.accept)
    if not question.drafts and len(chances) == 1:
        raise InputError("--accept with one probability needs --drafts, the tokens to draft at a time (3, say).")
    return question.drafts or len(chances), chances


def read_pool(question: SimulateQuestion, deployment: Deployment, longest: int) -> sim.Pool:
    drafter = None
    if question.draft:
        drafter = deploy(load_model(question.draft), deployment.piece, deployment.plan, deployment.engine)
    drafts, chances = _drafts(question)
    rule = read_autoscale(question.autoscale) if question.autoscale else None
    replicas = 1 if question.replicas is None else question.replicas
    return pool_for(
        deployment,
        longest,
        replicas if rule is None else min(max(replicas, rule.least), rule.most),
        draft=drafts,
        acceptance=chances,
        draft_part=0.0 if drafter is not None or not drafts else head_part(deployment.model),
        drafter=drafter,
        router=question.router,
        share_prefixes=bool(question.prefixes or question.trace or has_classes(question)),
        autoscale=rule,
    )


_FAILURE = re.compile(r"(?P<replica>\d{1,6})@(?P<at>[^+@]+)(?:\+(?P<down>[^+@]+))?")


def read_failures(text: str) -> tuple[tuple[sim.Failure, ...], sim.Faults | None]:
    """`3@100s+60s`: replica 3 dies at 100 s and is back a minute later; `mtbf=4h,down=10min`: each by chance. Of
    either `notice=30s` tells that it comes.

    >>> read_failures("3@100s+1min")[0]
    (Failure(replica=3, at_s=100.0, for_s=60.0, pool='serve', notice_s=0.0),)
    >>> read_failures("mtbf=4h,down=10min,notice=30s")[1]
    Faults(mtbf_s=14400.0, for_s=600.0, notice_s=30.0)
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    words = {"mtbf": "the mean time between failures", "down": "the time a replica is away", "notice": "the notice"}
    named = dict(part.split("=", 1) for part in parts if part.split("=")[0] in words and "=" in part)
    times = {name: parse(value, "s", words[name]) for name, value in named.items()}
    if "down" in times and "mtbf" not in times:
        raise InputError(f"--fail is {shorten(text)}; down belongs to mtbf, as in mtbf=4h,down=10min.")
    notice = times.get("notice", 0.0)
    given = [_failure(part) for part in parts if part.split("=")[0] not in named]
    chance = sim.Faults(times["mtbf"], times.get("down", 600.0), notice) if "mtbf" in times else None
    return tuple(replace(one, notice_s=notice) for one in given), chance


def _failure(text: str) -> sim.Failure:
    match = _FAILURE.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"--fail is {shorten(text)}; write REPLICA@TIME or REPLICA@TIME+DURATION, such as 3@100s+60s, or mtbf=4h."
        )
    down = parse(match["down"], "s", "the time a replica is away") if match["down"] else math.inf
    return sim.Failure(int(match["replica"]), parse(match["at"], "s", "the time of a failure"), down)


def read_autoscale(text: str, flag: str = "--autoscale") -> sim.Autoscale:
    """`2..16,target=24,startup=90s`: replicas from 2 to 16, as many as keep 24 requests on each. Instead of `target`:
    `queue=4` requests that wait on each, `kv=0.7` of its cache, `ttft=500ms`, or `schedule=8h:16/20h:4`.

    >>> read_autoscale("2..16,target=24").most
    16
    >>> read_autoscale("2..16,ttft=500ms").on, read_autoscale("2..16,schedule=8h:16/20h:4").schedule
    ('ttft', ((28800.0, 16), (72000.0, 4)))
    """
    kinds: dict[str, Callable[[str], Any]] = {
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
    (least, most), values = read_parts(flag, text, r"(\d{1,6})\.\.(\d{1,6})", wanted, kinds)
    signals = [name for name in ("target", "queue", "kv", "ttft", "schedule") if name in values]
    if not signals:
        raise InputError(f"{flag} is {shorten(text)}, without the requests per replica to aim at; add target=24.")
    if len(signals) > 1:
        raise InputError(f"{flag} has both {signals[0]} and {signals[1]}; an autoscaler looks at one of them.")
    signal = signals[0]
    return sim.Autoscale(
        least,
        most,
        1.0 if signal == "schedule" else values[signal],
        values.get("startup", 60.0),
        values.get("every", 10.0),
        signal if signal in ("queue", "kv", "ttft") else "requests",
        values.get("hold", 0.0 if signal in ("target", "schedule") else HOLD_S),
        values.get("schedule", ()),
    )


HOLD_S = 300.0
"""How long a signal must ask for fewer replicas: the Horizontal Pod Autoscaler's window for scaling down."""


def _schedule(text: str) -> tuple[tuple[float, int], ...]:
    """`8h:16/20h:4`: sixteen replicas from eight in the morning, four from eight in the evening."""
    pairs = (part.partition(":") for part in text.split("/"))
    return tuple((parse(at, "s", "a time of the schedule"), int(count)) for at, _, count in pairs)


# The traffic of `dscale simulate`: how requests come and what they are like.


LENGTHS = {"fixed": 1, "uniform": 2, "varied": 2, "lognormal": 8}
"""Kinds of lengths, and how many times the mean is the longest that step times are tabulated for. Requests whose
outputs are all equally long, and came together, end together: clients fall into step and send their next prompts at
once, and replicas empty at once. Of `varied` outputs they do not."""
MOST_REQUESTS = 100_000_000
SESSIONS = 5
"""Times of the longest session that a run of sessions takes, unless its requests are given."""


@dataclass(frozen=True)
class AskedTraffic:
    """Traffic, the longest request that step times are tabulated for, and the means of its requests."""

    source: sim.TrafficSource
    longest: int
    prompt: int
    output: int
    rate: float | None = None
    notes: tuple[str, ...] = ()
    room: int = 0
    """Tokens of a replica's KV cache when a trace was recorded; 0 where nobody says."""
    classes: tuple[ClassTable, ...] = ()
    settle: float = 0.0
    """The part of the requests that comes in the time of the longest session."""
    repeated: float = 0.0
    """The part of the prompts of classes that was a prompt before."""


def _lengths(question: SimulateQuestion | ClassTable, tokens: int, spread: int) -> Lengths:
    """Lengths of so many tokens on average, up to `spread` more and fewer where they are uniform."""
    if question.lengths not in LENGTHS:
        raise unknown("kind of lengths called", question.lengths, LENGTHS)
    if question.lengths in ("uniform", "varied") and spread:
        return sim.Uniform(max(1, tokens - spread), tokens + spread)
    return sim.Lognormal(tokens, question.cv, 32 * tokens) if question.lengths == "lognormal" else sim.Fixed(tokens)


def read_traffic(
    question: SimulateQuestion, context: int | None = None, brought: sim.Brought = PLAIN, more: int = 0
) -> AskedTraffic:
    """The traffic that is asked for. `varied` outputs vary by half of their mean, and by less where the longest would
    not fit in the model's `context` with its prompt. Requests have what is `brought`, of `more` tokens."""
    requests = parse_count(question.requests, "--requests")
    if not 0 <= requests <= MOST_REQUESTS:
        raise InputError(f"--requests is {shorten(question.requests)}; a run has from 0 to {MOST_REQUESTS:,} requests.")
    if tables := read_classes(question):
        return _classes(question, tables, requests, (context, brought, more))
    (prompt, one), (output, other) = (
        parse_length(getattr(question, name), f"--{name}") for name in ("prompt", "output")
    )
    notes = tuple(dict.fromkeys(text for text in (one, other) if text))
    rate = parse(question.rate, "count/s", "the rate") if question.rate else None
    if question.trace:
        if rate is not None or question.clients:
            raise InputError("A trace says when requests come; leave --rate and --clients out, or use --speed.")
        return _replayed(question, requests, brought)
    if question.ramp and not question.clients:
        raise InputError("--ramp is the time over which --clients begin; with a rate leave it out.")
    spreads = prompt // 2, output // 2
    if question.lengths == "varied":
        spreads = 0, min(output // 2, max(context - prompt - output, 0) if context else output)
    sizes = longer(_lengths(question, prompt, spreads[0]), more), _lengths(question, output, spreads[1])
    longest, prompt = (prompt + output) * LENGTHS[question.lengths] + more, prompt + more
    prefixes = read_prefixes(question.prefixes) if question.prefixes else None
    if question.clients:
        if rate is not None:
            raise InputError("--clients send their next request when they have their output; leave --rate out.")
        ramp = parse(question.ramp, "s", "--ramp") if question.ramp else 0.0
        source = sim.ClosedLoop(question.clients, requests, *sizes, ramp_s=ramp, prefixes=prefixes, brought=brought)
        return AskedTraffic(source, longest, prompt, output, notes=notes)
    source = sim.OpenLoop(_arrivals(question, rate), requests, *sizes, prefixes, brought)
    return AskedTraffic(source, longest, prompt, output, None if question.arrivals == "at-once" else rate, notes)


def longer(lengths: Lengths, more: int) -> Lengths:
    """Lengths with the tokens of images."""
    return sim.Longer(lengths, more) if more else lengths


def _classes(
    question: SimulateQuestion, tables: list[ClassTable], requests: int, has: tuple[int | None, sim.Brought, int]
) -> AskedTraffic:
    """Several kinds of requests at once."""
    rates = [one.requests_per_s for one in tables]
    longest, total = max(one.session_s for one in tables), sum(rates)
    if question.requests == SimulateQuestion.requests:  # sessions are there in every phase after one of them
        requests = min(max(requests, round(SESSIONS * longest * total)), MOST_REQUESTS)
    context = has[0]
    kinds = [_class(one, rate, *has) for one, rate in zip(tables, rates, strict=True)]
    source = sim.Mixed(tuple(kinds), requests)
    means = means_of(source)
    settle = longest * total / max(requests, 1)
    notes = [f"{one.name}: {one.source} (assumed: {one.assumed})." for one in tables if one.source]
    words = {"classes": tuple(tables), "settle": settle, "notes": tuple(notes), "repeated": means.repeated}
    most = min(4 * means.longest, context or 4 * means.longest)
    return AskedTraffic(source, max(most, means.longest), means.prompt, means.output, total, **words)


def _class(one: ClassTable, rate: float, context: int | None, brought: sim.Brought, more: int) -> sim.TrafficClass:
    prompt, output = tokens_of(one, "prompt"), tokens_of(one, "output")
    for word in ("turns", "calls"):
        if (many := getattr(one, word)) < 1:
            raise InputError(f"{word} of the class {one.name} is {many:g}; a session has at least 1.")
    sessions = rate / (one.turns * one.calls)
    return sim.TrafficClass(
        arrivals_of(one, sessions) if one.profile else _arrivals(one, sessions),
        longer(_lengths(one, prompt, prompt // 2 if one.lengths == "uniform" else 0), more),
        _lengths(one, output, output // 2),
        one.turns,
        parse(one.think, "s", "think"),
        one.calls,
        parse(one.pause, "s", "pause"),
        _lengths(one, tokens_of(one, "result"), 0),
        read_prefixes(one.prefixes) if one.prefixes else None,
        one.priority,
        sim.Pairs(tuple(one.pairs)) if one.pairs else None,
        sim.Pairs(tuple(one.later)) if one.later else None,
        context or sim.TrafficClass.most,
        brought,
    )


def _replayed(question: SimulateQuestion, requests: int, brought: sim.Brought) -> AskedTraffic:
    """A trace, all of it unless fewer requests are asked for, with what its requests are like on average."""
    replay = replace(sim.read_trace(question.trace, question.speed), brought=brought)
    if question.requests != SimulateQuestion.requests:
        replay = replay.first(requests)
    count, inputs, outputs, longest, last = 0, 0, 0, 1, 0.0
    for request in itertools.islice(replay.read(), replay.requests):
        count += 1
        inputs, outputs = inputs + request.input_tokens, outputs + request.output_tokens
        longest = max(longest, request.input_tokens + request.output_tokens)
        last = request.arrival_s
    if not count:
        return AskedTraffic(replay, longest, 1, 1)
    means = max(round(inputs / count), 1), max(round(outputs / count), 1)
    rate = count / last * question.speed if last > 0 and not replay.after else None  # a closed loop has none
    return AskedTraffic(replay, longest, *means, rate, room=recorded_room(question.trace))


def _arrivals(question: SimulateQuestion | ClassTable, rate: float | None) -> Arrivals:
    if question.arrivals == "at-once":
        return sim.AtOnce()
    if rate is None:
        raise InputError("Say how requests come: --rate 20/s, --clients 64, --trace FILE or --arrivals at-once.")
    if question.arrivals == "gamma":
        return sim.Gamma(rate, question.burst)
    if question.arrivals == "diurnal":
        return sim.Diurnal(rate, question.swing, parse(question.period, "s", "--period"))
    return sim.Poisson(rate)


def read_parts(
    flag: str, text: str, first: str, wanted: str, kinds: Mapping[str, Callable[[str], Any]]
) -> tuple[list[int], dict[str, Any]]:
    """`16x32,name=value`: the numbers of the first part, and the named values after it."""
    head, *rest = (part.strip() for part in text.split(","))
    match = re.fullmatch(first, head)
    if match is None:
        raise InputError(f"{flag} is {shorten(text)}; write {wanted}.")
    values: dict[str, Any] = {}
    for part in rest:
        name, _, value = part.partition("=")
        if name not in kinds:
            raise unknown(f"part of {flag} called", name, kinds)
        try:
            values[name] = kinds[name](value)
        except InputError:
            raise
        except ValueError:
            raise InputError(f"In {flag} {name} is {shorten(value)}; write a number.") from None
    return [int(number) for number in match.groups()], values


def read_prefixes(text: str) -> sim.Prefixes:
    """`100x1024,share=0.8,skew=1`: a hundred prefixes of 1,024 tokens that begin 80% of the prompts.

    >>> read_prefixes("100x1024,skew=1").groups
    100
    """
    wanted = "GROUPSxTOKENS, such as 100x1024,share=0.8,skew=1"
    sizes, values = read_parts("--prefixes", text, r"(\d{1,9})x(\d{1,9})", wanted, {"share": float, "skew": float})
    return sim.Prefixes(*sizes, **values)
