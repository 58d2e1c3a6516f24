"""The traffic of `dscale simulate` as its flags describe it: how requests come and what they are like."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from dragonscale.commands.given import comma_list
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.simulation.distributions import Arrivals
from dragonscale.simulation.fleet_sizing.fleet_traffic import (
    LENGTH_SPANS,
    FleetTraffic,
    arrivals_of,
    check_requests,
    lengthened,
    lengths_of,
    varied_spread,
)
from dragonscale.simulation.fleet_sizing.traffic_classes import (
    ClassTable,
    class_of,
    class_traffic,
    read_prefixes,
    use_cases,
)
from dragonscale.simulation.trace_files import read_trace, recorded_room
from dragonscale.simulation.traffic import PLAIN, Brought, ClosedLoop, OpenLoop, Replay
from dragonscale.tables import read_table

# The stream of random numbers that times of requests without any are drawn from.
TRACE_TIMES = 5
# Flags that a use case takes for its own numbers, and that other classes of traffic say themselves.
CLASS_FLAGS = ("prompt", "output", "lengths", "prefixes", "rate", "ttft", "tpot", "e2e")


@dataclass(frozen=True)
class AskedTraffic:
    """Traffic, the tables of its classes as they were written, and notes on how it was read."""

    traffic: FleetTraffic
    tables: tuple[ClassTable, ...] = ()
    notes: tuple[str, ...] = ()


def read_traffic(
    question: SimulateQuestion, context: int | None = None, brought: Brought = PLAIN, image_tokens: int = 0
) -> AskedTraffic:
    """The traffic that is asked for. Requests have what is `brought`, of `image_tokens` tokens; none is longer than the
    model's `context`."""
    requests = parse_count(question.requests, "--requests")
    check_requests(requests, shorten(question.requests))
    fixed_count = question.requests != SimulateQuestion.requests
    if tables := read_classes(question):
        return AskedTraffic(
            class_traffic(
                tables,
                [table.requests_per_s for table in tables],
                requests,
                fixed_count=fixed_count,
                context=context,
                brought=brought,
                image_tokens=image_tokens,
            ),
            tuple(tables),
            tuple(f"{table.name}: {table.source} (assumed: {table.assumed})." for table in tables if table.source),
        )
    prompt, prompt_note = parse_length(question.prompt, "--prompt")
    output, output_note = parse_length(question.output, "--output")
    notes = tuple(dict.fromkeys(note for note in (prompt_note, output_note) if note))
    rate = parse(question.rate, "count/s", "the rate") if question.rate else None
    if question.trace:
        if question.clients:
            raise InputError("A trace says when requests come; leave --rate and --clients out, or use --speed.")
        times = None
        if rate is not None or question.arrivals == "at-once":
            times = _arrivals(question, rate).times(numpy.random.default_rng((question.seed, TRACE_TIMES)))
        replay = read_trace(question.trace, question.speed, times)
        traffic = _replayed(question, replay, requests if fixed_count else None, brought)
        return AskedTraffic(traffic, notes=tuple(filter(None, [replay.note])))
    if question.ramp and not question.clients:
        raise InputError("--ramp is the time over which --clients begin; with a rate leave it out.")
    if question.clients and rate is not None:
        raise InputError("--clients send their next request when they have their output; leave --rate out.")
    # tokens by which lengths differ from their mean, where they are uniform
    prompt_spread, output_spread = prompt // 2, output // 2
    if question.lengths == "varied":
        prompt_spread, output_spread = 0, varied_spread(prompt, output, context)
    inputs = lengthened(lengths_of(question.lengths, prompt, prompt_spread, question.cv), image_tokens)
    outputs = lengths_of(question.lengths, output, output_spread, question.cv)
    prefixes = read_prefixes(question.prefixes)
    if question.clients:
        ramp_s = parse(question.ramp or "0s", "s", "--ramp")
        source = ClosedLoop(
            question.clients, requests, inputs, outputs, ramp_s=ramp_s, prefixes=prefixes, brought=brought
        )
    else:
        source = OpenLoop(_arrivals(question, rate), requests, inputs, outputs, prefixes, brought)
    traffic = FleetTraffic(
        source,
        longest=(prompt + output) * LENGTH_SPANS[question.lengths] + image_tokens,
        prompt=prompt + image_tokens,
        output=output,
        rate=None if question.arrivals == "at-once" else rate,
        shares_prefixes=prefixes is not None,
        fixed_count=fixed_count,
        fixed_ramp=bool(question.ramp),
    )
    return AskedTraffic(traffic, notes=notes)


def _arrivals(question: SimulateQuestion, rate: float | None) -> Arrivals:
    if rate is None and question.arrivals != "at-once":
        raise InputError("Say how requests come: --rate 20/s, --clients 64, --trace FILE or --arrivals at-once.")
    period_s = parse(question.period, "s", "--period")
    return arrivals_of(question.arrivals, rate or 0.0, question.burst, question.swing, period_s)


def _replayed(question: SimulateQuestion, trace: Replay, requests: int | None, brought: Brought) -> FleetTraffic:
    """A trace, no more than so many requests of it (None: all), with what they are like on average."""
    replay = replace(trace, brought=brought)
    if requests is not None:
        replay = replay.first(requests)
    count = input_tokens = output_tokens = 0
    longest, last_arrival_s = 1, 0.0
    for request in itertools.islice(replay.read(), replay.requests):
        count += 1
        input_tokens += request.input_tokens
        output_tokens += request.output_tokens
        longest = max(longest, request.input_tokens + request.output_tokens)
        last_arrival_s = request.arrival_s
    if not count:
        return FleetTraffic(replay, longest, prompt=1, output=1, shares_prefixes=True)
    rate = None
    if last_arrival_s > 0 and not replay.after:  # requests that wait for others have no rate
        rate = count / last_arrival_s * question.speed
    return FleetTraffic(
        replay,
        longest,
        prompt=max(round(input_tokens / count), 1),
        output=max(round(output_tokens / count), 1),
        rate=rate,
        shares_prefixes=True,
        recorded_kv_tokens=recorded_room(question.trace),
    )


def has_classes(question: SimulateQuestion) -> bool:
    """Whether the traffic is of classes, be it one."""
    return bool(question.traffic or question.classes or question.use_case)


def read_classes(question: SimulateQuestion) -> list[ClassTable]:
    """The classes of a question: those of a file (`--traffic`), in words (`--class chat,rate=8/s,priority=0`), or a use
    case and a number of users; none where it has one kind of request."""
    if sum(map(bool, (question.traffic, question.classes, question.use_case))) > 1:
        raise InputError("--traffic, --class and --use-case each say what comes; give one of them.")
    if question.use_case:
        return [_use_case(question)]
    if question.classes:
        return [class_of(table, "--class") for table in _class_tables(question.classes)]
    if not question.traffic:
        return []
    tables = read_table(Path(question.traffic), "traffic file").get("class")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"The traffic file {shorten(question.traffic)} has no [[class]] in it.")
    return [class_of(table, f"the traffic file {Path(question.traffic).name}") for table in tables]


def _use_case(question: SimulateQuestion) -> ClassTable:
    if question.use_case not in use_cases():
        raise unknown("use case called", question.use_case, use_cases())
    table: dict[str, Any] = {"name": question.use_case}
    table |= {name: value for name in CLASS_FLAGS if (value := getattr(question, name))}
    if question.users:
        table["users"] = float(question.users)
    return class_of(table, "--use-case")


def _class_tables(text: str) -> list[dict[str, Any]]:
    """The tables of `chat,rate=8/s,agent,users=50`: a word without a value begins a class."""
    tables: list[dict[str, Any]] = []
    for part in comma_list(text):
        name, equals, value = part.partition("=")
        if not equals:
            tables.append({"name": name})
        elif not tables:
            raise InputError(f"--class is {shorten(text)}; begin with its name: --class chat,rate=8/s.")
        elif name not in ClassTable.__struct_fields__:
            raise unknown("part of --class called", name, ClassTable.__struct_fields__)
        else:
            # lengths are numbers or text such as 8k
            is_text = isinstance(getattr(ClassTable("", ""), name), str) or name in ("prompt", "output", "result")
            tables[-1][name] = value if is_text else _number(name, value)
    return tables


def _number(name: str, value: str) -> float:
    try:
        return int(value) if value.lstrip("-").isdigit() else float(value)
    except ValueError:
        raise InputError(f"In --class {name} is {shorten(value)}; write a number.") from None
