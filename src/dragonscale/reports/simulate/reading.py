"""The flags of `dscale simulate` understood: a fleet, its traffic, and how the run is measured."""

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale import simulation as sim
from dragonscale.errors import Infeasible, InputError, shorten, unknown
from dragonscale.hardware import parse_slice
from dragonscale.hardware.prices import read_prices, slice_at_price
from dragonscale.models import load_model
from dragonscale.reports.serve.formats import planned_formats
from dragonscale.reports.serve.words import ServeQuestion
from dragonscale.reports.simulate.question import SimulateQuestion
from dragonscale.serving.acceptance import read_acceptance
from dragonscale.serving.auto import AUTO, auto_choice
from dragonscale.serving.deployment import Deployment, deploy, filling
from dragonscale.serving.engine import split_settings
from dragonscale.serving.launch import LaunchLimits, engine_on
from dragonscale.serving.legal import refusal
from dragonscale.serving.legality import server_of
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.plan_file import SavedPlan, is_plan_file, load_serving_plan, read_serving_plan
from dragonscale.serving.speculation import head_part
from dragonscale.simulation.deployed import pool_for
from dragonscale.simulation.distributions import Arrivals, Lengths
from dragonscale.units import parse, parse_count

ARRIVALS = ("poisson", "gamma", "diurnal", "at-once")
LENGTHS = {"fixed": 1, "uniform": 2, "lognormal": 8}
"""Kinds of lengths, and how many times the mean is the longest that step times are tabulated for."""
CHARTS = ("latency", "occupancy")
PERCENTILES = (50, 90, 95, 99)
PROMPT, OUTPUT = 2048, 256
"""Tokens of a request where nothing says otherwise."""
MOST_REQUESTS = 100_000_000


@dataclass(frozen=True)
class AskedTraffic:
    """Traffic, the longest request that step times are tabulated for, and the means of its requests."""

    source: sim.TrafficSource
    longest: int
    prompt: int
    output: int
    rate: float | None = None


@dataclass(frozen=True)
class SimulateAsked:
    """The flags understood."""

    question: SimulateQuestion
    deployment: Deployment
    prefill: Deployment | None
    fleet: sim.Fleet
    traffic: AskedTraffic
    options: sim.SimulationOptions
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> dict[str, float]:
        """Seconds by the latency that they are a target for."""
        found = {"ttft_s": self.options.ttft_s, "tpot_s": self.options.tpot_s}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    @property
    def percentile(self) -> int:
        """The percentile of latencies that targets are for."""
        return self.question.percentile


def read_question(model: str, question: SimulateQuestion, events: int = 0) -> SimulateAsked:
    """Check every flag; what cannot be used is refused in one sentence."""
    if question.chart not in CHARTS:
        raise unknown("chart", question.chart, CHARTS)
    if question.percentile not in PERCENTILES:
        known = ", ".join(map(str, PERCENTILES))
        raise InputError(f"--percentile is {question.percentile}; targets are for one of {known}.")
    name, saved = _saved(model, question)
    question = filled(question, saved)
    deployment = _deployment(name, question, saved)
    _check_chips(deployment, str(deployment.piece))
    traffic = _traffic(question)
    prefill = _prefill(question, deployment)
    forced = _refused(question, deployment, prefill, traffic.prompt + traffic.output)
    pool = _pool(question, deployment, traffic.longest)
    fleet = sim.Fleet(
        pool,
        prefill and pool_for(prefill, traffic.longest, question.prefill_replicas or 1, router="least_loaded"),
        tuple(read_failure(part) for part in question.fail.split(",") if part.strip()),
        overhead_s=deployment.engine.host.front_s(traffic.prompt),
        queue_limit=question.queue_limit or None,
    )
    options = sim.SimulationOptions(
        seed=question.seed,
        warmup=question.warmup,
        ttft_s=parse(question.ttft, "s", "--ttft") if question.ttft else math.inf,
        tpot_s=parse(question.tpot, "s", "--tpot") if question.tpot else math.inf,
        events=events,
    )
    chosen = _chosen(question.engine or saved.engine, deployment)
    notes = (*chosen, *_prices(question, str(deployment.piece))[1], *forced)
    return SimulateAsked(question, deployment, prefill, fleet, traffic, options, notes)


def _saved(name: str, question: SimulateQuestion) -> tuple[str, SavedPlan]:
    """The model, and the plan of flags or of a file of `dscale serve --save`: given for the model, or as the plan."""
    if not is_plan_file(name):
        return name, read_serving_plan(question.plan) if question.plan else SavedPlan(ServingPlan(), whole=False)
    if question.plan:
        raise InputError(f"{shorten(name)} is a serving plan already; leave --plan out.")
    saved = load_serving_plan(name)
    if not saved.model:
        raise InputError(f'The plan file {shorten(name)} names no model; add model = "llama3-70b".')
    return saved.model, saved


def filled(question: SimulateQuestion, saved: SavedPlan) -> SimulateQuestion:
    """The question with what its flags leave open as the plan file has it, or as it usually is.

    A replica takes no more sequences at once than the planned batch. Where the plan has no rate, as many clients as keep its
    batches full send requests: the steady state that was planned.
    """
    traffic, drafts, pool, launch = saved.traffic, saved.speculation, saved.prefill, saved.launch
    replicas = question.replicas if question.replicas is not None else saved.replicas or 1
    most = -(-saved.batch // saved.plan.data) if saved.batch else launch.max_seqs
    prompt = question.prompt or str(traffic.prompt or PROMPT)
    coming = question.rate or question.clients or question.trace or question.arrivals == "at-once"
    words: dict[str, Any] = {
        "replicas": replicas,
        "prompt": prompt,
        "output": question.output or str(traffic.output or OUTPUT),
        "ttft": question.ttft or saved.targets.ttft,
        "tpot": question.tpot or saved.targets.tpot,
        "max_seqs": most if question.max_seqs is None else question.max_seqs,
        "token_budget": launch.token_budget if question.token_budget is None else question.token_budget,
        "memory_fraction": launch.memory_fraction if question.memory_fraction is None else question.memory_fraction,
    }
    if not coming:
        clients = 0 if traffic.rate else saved.batch * replicas
        words |= {"rate": traffic.rate, "clients": clients, "ramp": question.ramp or (traffic.ramp if clients else "")}
    if traffic.cached and not (question.prefixes or question.trace):
        shared = round(_tokens(prompt, "--prompt") * traffic.cached)
        words["prefixes"] = f"1x{shared}" if shared else ""
    if drafts.drafts and not (question.drafts or question.speculate or question.acceptance):
        words |= {"drafts": drafts.drafts, "speculate": drafts.acceptance, "draft": drafts.draft}
    own = bool(pool.slice) and not question.prefill_on
    words |= {"prefill_on": pool.slice, "prefill_plan": pool.plan} if own else {}
    words["prefill_replicas"] = question.prefill_replicas or (pool.replicas if own else 0) or 1
    return replace(question, **words)


def _deployment(name: str, question: SimulateQuestion, saved: SavedPlan) -> Deployment:
    """One replica."""
    where = question.on or saved.slice
    if not where:
        raise InputError("Say where a replica runs: --on h100:8, or a plan file that names its slice.")
    piece = slice_at_price(parse_slice(where), _prices(question, where)[0])
    limits = LaunchLimits(question.max_seqs, question.token_budget, question.memory_fraction)
    model = load_model(name)
    engine = engine_on(question.engine or saved.engine or AUTO, piece.chip, model, limits, piece.chips)
    formats = planned_formats(saved, ServeQuestion(name), engine.name, piece.chip, model)
    plan = replace(saved.plan, **formats)
    return deploy(model, piece, plan if saved.whole else filling(plan, piece), engine)


def _chosen(engine: str, deployment: Deployment) -> list[str]:
    """Which engine was taken and why, where nobody named one."""
    if engine and split_settings(engine)[0] != AUTO:
        return []
    choice = auto_choice(deployment.chip, deployment.model, deployment.piece.chips)
    return [f"The engine is {choice.engine}: {choice.why}."]


def _refused(question: SimulateQuestion, deployment: Deployment, prefill: Deployment | None, tokens: int) -> list[str]:
    """What no engine runs is refused; forced, it is noted."""
    pools = [one for one in (deployment, prefill) if one is not None]
    found = [refusal(one.engine.name, one.piece, one.model, one.plan, tokens) for one in pools]
    names = [server_of(one.engine.name) for one in pools]
    if prefill is not None and names[0] != names[1]:
        found.append(
            f"prefill replicas run {names[1]} and decode replicas {names[0]}, and a cache passes between replicas of one engine; "
            f"take a chip for prefill that {names[0]} runs on"
        )
    if prefill is not None and prefill.plan.kv != deployment.plan.kv:
        found.append(
            f"prefill replicas write a KV cache in {prefill.plan.kv} and decode replicas read one in {deployment.plan.kv}; "
            f"give both kv={deployment.plan.kv}"
        )
    found = [text for text in dict.fromkeys(found) if text]
    if found and not question.force:
        raise Infeasible(f"Not possible: {found[0]}, or add --force.")
    return [f"Forced: {text}." for text in found]


def _prices(question: SimulateQuestion, where: str) -> tuple[dict[str, float], list[str]]:
    """What `--price` says of the chips of both pools, and notes on it."""
    chips = [parse_slice(one).chip for one in (where, question.prefill_on) if one]
    return read_prices(question.price, chips)


def _check_chips(deployment: Deployment, where: str) -> None:
    if deployment.plan.chips != deployment.piece.chips:
        raise InputError(
            f"The plan {deployment.plan} uses {deployment.plan.chips} chips, and one replica is {where}, which has "
            f"{deployment.piece.chips}; make them the same and ask for more --replicas."
        )


def _tokens(text: str, what: str) -> int:
    found = parse_count(text, what)
    if not 1 <= found <= 10**8:
        raise InputError(f"{what} is {shorten(text)}; a request has from 1 to 10^8 tokens of either kind.")
    return found


def _lengths(question: SimulateQuestion, tokens: int) -> Lengths:
    if question.lengths not in LENGTHS:
        raise unknown("kind of lengths called", question.lengths, LENGTHS)
    if question.lengths == "uniform":
        return sim.Uniform(max(1, tokens // 2), tokens + tokens // 2)
    return sim.Lognormal(tokens, question.cv, 32 * tokens) if question.lengths == "lognormal" else sim.Fixed(tokens)


def _traffic(question: SimulateQuestion) -> AskedTraffic:
    prompt, output = _tokens(question.prompt, "--prompt"), _tokens(question.output, "--output")
    rate = parse(question.rate, "count/s", "the rate") if question.rate else None
    requests = parse_count(question.requests, "--requests")
    if not 0 <= requests <= MOST_REQUESTS:
        raise InputError(f"--requests is {shorten(question.requests)}; a run has from 0 to {MOST_REQUESTS:,} requests.")
    if question.trace:
        if rate is not None or question.clients:
            raise InputError("A trace says when requests come; leave --rate and --clients out, or use --speed.")
        return _replayed(question, requests)
    if question.ramp and not question.clients:
        raise InputError("--ramp is the time over which --clients begin; with a rate leave it out.")
    sizes = (_lengths(question, prompt), _lengths(question, output))
    longest = (prompt + output) * LENGTHS[question.lengths]
    prefixes = read_prefixes(question.prefixes) if question.prefixes else None
    if question.clients:
        if rate is not None:
            raise InputError("--clients send their next request when they have their output; leave --rate out.")
        ramp = parse(question.ramp, "s", "--ramp") if question.ramp else 0.0
        source = sim.ClosedLoop(question.clients, requests, *sizes, ramp_s=ramp, prefixes=prefixes)
        return AskedTraffic(source, longest, prompt, output)
    source = sim.OpenLoop(_arrivals(question, rate), requests, *sizes, prefixes)
    return AskedTraffic(source, longest, prompt, output, None if question.arrivals == "at-once" else rate)


def _replayed(question: SimulateQuestion, requests: int) -> AskedTraffic:
    """A trace, all of it unless fewer requests are asked for, with what its requests are like on average."""
    replay = sim.read_trace(question.trace, question.speed)
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
    return AskedTraffic(replay, longest, *means, count / last * question.speed if last > 0 else None)


def _arrivals(question: SimulateQuestion, rate: float | None) -> Arrivals:
    if question.arrivals not in ARRIVALS:
        raise unknown("kind of arrivals called", question.arrivals, ARRIVALS)
    if question.arrivals == "at-once":
        return sim.AtOnce()
    if rate is None:
        raise InputError("Say how requests come: --rate 20/s, --clients 64, --trace FILE or --arrivals at-once.")
    if question.arrivals == "gamma":
        return sim.Gamma(rate, question.burst)
    if question.arrivals == "diurnal":
        return sim.Diurnal(rate, question.swing, parse(question.period, "s", "--period"))
    return sim.Poisson(rate)


def _drafts(question: SimulateQuestion) -> tuple[int, tuple[float, ...]]:
    """Tokens to draft, and how often each is right; as many as chances are given, where the number is not said."""
    text = question.speculate or question.acceptance
    if not text:
        if question.drafts or question.draft:
            raise InputError(
                "--drafts and --draft need --speculate (or --acceptance), the probability that a draft is right (0.7, say)."
            )
        return 0, (0.0,)
    chances = read_acceptance(text, "--speculate" if question.speculate else "--acceptance")
    if not question.drafts and len(chances) == 1:
        raise InputError("--speculate with one probability needs --drafts, the tokens to draft at a time (3, say).")
    return question.drafts or len(chances), chances


def _pool(question: SimulateQuestion, deployment: Deployment, longest: int) -> sim.Pool:
    drafter = None
    if question.draft:
        drafter = deploy(load_model(question.draft), deployment.piece, deployment.plan, deployment.engine)
    drafts, chances = _drafts(question)
    pool = pool_for(
        deployment,
        longest,
        1 if question.replicas is None else question.replicas,
        draft=drafts,
        acceptance=chances,
        draft_part=0.0 if drafter is not None or not drafts else head_part(deployment.model),
        drafter=drafter,
        router=question.router,
        share_prefixes=bool(question.prefixes or question.trace),
        autoscale=read_autoscale(question.autoscale) if question.autoscale else None,
    )
    host = parse(question.host_cache, "bytes", "--host-cache") if question.host_cache else 0.0
    if not host:
        return pool
    each = pool.times.per_token  # pyright: ignore[reportAttributeAccessIssue]
    chips = deployment.plan.tensor * deployment.plan.pipe
    # Each chip loads its own share of a token over its own link.
    return replace(pool, host_tokens=int(host / (each * chips)), host_tokens_per_s=deployment.chip.host_link / each)


def _prefill(question: SimulateQuestion, deployment: Deployment) -> Deployment | None:
    if not question.prefill_on:
        if question.prefill_plan:
            raise InputError("--prefill-plan needs --prefill-on, the slice of one prefill replica.")
        return None
    saved = read_serving_plan(question.prefill_plan) if question.prefill_plan else SavedPlan(ServingPlan(), whole=False)
    # What a prefill plan does not say of formats is as in the decode pool.
    words = [name for name in ("weights", "kv", "compute", "attention", "wire") if name not in saved.named]
    plan = replace(saved.plan, **{name: getattr(deployment.plan, name) for name in words})
    where = slice_at_price(parse_slice(question.prefill_on), _prices(question, str(deployment.piece))[0])
    engine = deployment.engine
    if where.chip.name != deployment.chip.name:
        engine = engine_on(question.engine or AUTO, where.chip, deployment.model, chips=where.chips)
    found = deploy(deployment.model, where, plan if saved.whole else filling(plan, where), engine)
    _check_chips(found, question.prefill_on)
    return found


_FAILURE = re.compile(r"(?P<replica>\d{1,6})@(?P<at>[^+@]+)(?:\+(?P<down>[^+@]+))?")


def read_failure(text: str) -> sim.Failure:
    """`3@100s+60s`: replica 3 dies at 100 s and is back a minute later.

    >>> read_failure("3@100s+1min")
    Failure(replica=3, at_s=100.0, for_s=60.0, pool='serve')
    """
    match = _FAILURE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--fail is {shorten(text)}; write REPLICA@TIME or REPLICA@TIME+DURATION, such as 3@100s+60s.")
    down = parse(match["down"], "s", "the time a replica is away") if match["down"] else math.inf
    return sim.Failure(int(match["replica"]), parse(match["at"], "s", "the time of a failure"), down)


def _read_parts(
    flag: str, text: str, first: str, wanted: str, kinds: Mapping[str, Callable[[str], float]]
) -> tuple[list[int], dict[str, float]]:
    """`16x32,name=value`: the numbers of the first part, and the named values after it."""
    head, *rest = (part.strip() for part in text.split(","))
    match = re.fullmatch(first, head)
    if match is None:
        raise InputError(f"{flag} is {shorten(text)}; write {wanted}.")
    values: dict[str, float] = {}
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


def read_autoscale(text: str) -> sim.Autoscale:
    """`2..16,target=24,startup=90s`: replicas from 2 to 16, as many as keep 24 requests on each.

    >>> read_autoscale("2..16,target=24").most
    16
    """
    kinds = {
        "target": lambda value: float(parse_count(value, "the target")),
        "startup": lambda value: parse(value, "s", "startup"),
        "every": lambda value: parse(value, "s", "every"),
    }
    wanted = "LEAST..MOST,target=REQUESTS, such as 2..16,target=24"
    (least, most), values = _read_parts("--autoscale", text, r"(\d{1,6})\.\.(\d{1,6})", wanted, kinds)
    if "target" not in values:
        raise InputError(f"--autoscale is {shorten(text)}, without the requests per replica to aim at; add target=24.")
    return sim.Autoscale(least, most, values["target"], values.get("startup", 60.0), values.get("every", 10.0))


def read_prefixes(text: str) -> sim.Prefixes:
    """`100x1024,share=0.8,skew=1`: a hundred prefixes of 1,024 tokens that begin 80% of the prompts.

    >>> read_prefixes("100x1024,skew=1").groups
    100
    """
    wanted = "GROUPSxTOKENS, such as 100x1024,share=0.8,skew=1"
    sizes, values = _read_parts("--prefixes", text, r"(\d{1,9})x(\d{1,9})", wanted, {"share": float, "skew": float})
    return sim.Prefixes(*sizes, **values)
