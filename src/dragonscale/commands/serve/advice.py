"""What bounds a configuration and what to change; how surely targets are met."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.commands.advised import FITS, MEETS, TOKENS, Advice
from dragonscale.commands.serve.config import STEP_SCORES, WIRES
from dragonscale.commands.serve.formats import known_engine
from dragonscale.commands.serve.search import at_batches
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, ServeRequest
from dragonscale.commands.serve.variants import solved_limits
from dragonscale.exports.engines.checkpoints import NO_GRAPHS
from dragonscale.physics.hardware import Slice, Torus
from dragonscale.physics.units import render
from dragonscale.serving.engine.auto import NODE
from dragonscale.serving.engine.checkpoint import bits, narrower_formats
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import rules
from dragonscale.serving.space.disaggregation import PooledConfig, Pools
from dragonscale.serving.space.frontier import Config, judge
from dragonscale.serving.space.legal import divisible, model_caches
from dragonscale.serving.space.ranking import best
from dragonscale.serving.space.space import Lot, stack
from dragonscale.serving.steady.narrowing import PACE_S, PATIENCE_S
from dragonscale.serving.steady.targets import LATENCIES, MEAN

BUDGET = 8192
"""Tokens of an iteration with which prompts are prefilled at nearly all of a chip's rate: what vLLM, SGLang and
TensorRT-LLM take by themselves on chips of 80 GB."""
WORTH = 0.05
"""More tokens than steps are expected wrong by."""
LATENCY = "latency: small kernels, launches and collectives' latency"
SEEN = 0.005
"""More tokens than are told as +0%."""
MOSTLY = 0.5
"""Of the time, what prefill takes where it is what bounds a replica."""
NOTICEABLE = 1.25
"""A batch that is so much larger is another choice; those between are only looked at to find where a target is just
met."""


@dataclass(frozen=True)
class ServingAdvice:
    """What takes most of a step (`bound`) and what to `change`: in one, each by itself, and what of it flags do."""

    text: str
    bound: str
    change: str
    changes: tuple[Advice, ...] = ()


def advice(asked: ServeAsked, config: Config, report: ConfigReport, configs: Sequence[Config]) -> ServingAdvice:
    """What takes most of the best configuration's step and what to change."""
    lowest = next(solved_limits(asked, config))
    critical = lowest.value if lowest.name == "critical batch" else math.inf
    if asked.ask.output == 1:
        longest, whole = report.prefill_terms[0], sum(row.expected_s for row in report.prefill_terms)
        share = f"{longest.name} takes {longest.expected_s / whole:.0%}"
        bound = f"prefill, of which {share}"
        change = "faster chips, narrower matmuls or cached prefixes (--cached) shorten it."
        return ServingAdvice(f"Bound by {bound}: {change}", bound, change)
    remedies = {
        "weight reads": _for_weights(asked, config, critical),
        "cache reads": _for_cache(asked, config),
        "compute": [Advice(_for_compute(asked, config, critical))],
        "collectives": [Advice(_for_wires(config, report))],
        "latency": [Advice(_for_latency(asked, config, critical, configs))],
        "host": [Advice("fewer chips or a larger batch, so that steps outlast the host's work for them")],
    }[config.bound_by]
    against = f"{render(config.decode_s, 's')} a step against {render(report.roofline_s or 0.0, 's')}"
    words = {"latency": f"{LATENCY} ({against} at datasheet rates)", "cache reads": STEP_SCORES}
    bound = words.get(config.bound_by, config.bound_by)
    sentences = [f"{', '.join(one.text for one in remedies)}."]
    if isinstance(config, PooledConfig):
        pools = _of_pools(config.pools, bound, sentences[0])
        narrower = _narrower_pools(asked, config)
        return replace(pools, text=f"{pools.text}{narrower}", change=f"{pools.change}{narrower}")
    changes = [_next_batch(asked, config, configs), *_next_launch(asked, config), _not_looked_at(asked)]
    sentences += [one.text for one in changes]
    followed = tuple(one for one in (*remedies, *changes) if one.flags)
    change, prompts = " ".join(filter(None, sentences)), float(config.state.added * config.state.requests)
    if prompts > MOSTLY:
        bound = f"prefill ({min(prompts, 1):.0%} of the time), and decode steps by {bound}"
        change = f"cached prefixes (--cached) and narrower matmuls shorten prefill; in decode steps {change}"
        return ServingAdvice(f"Bound by {bound}: {change}", bound, change, followed)
    return ServingAdvice(f"Decoding is bound by {bound}: {change}", bound, change, followed)


def _of_pools(pair: Pools, step: str, remedy: str) -> ServingAdvice:
    """Which pool has no more to give, and what another replica of it would bring; where it is the one that decodes,
    also what shortens its steps."""
    role = "prefill" if pair.prefill_binds else "decode"
    least = " as far as the TTFT asked for allows" if pair.ask.ttft is not None else ""
    bound = f"prefill, at {pair.prefill_load:.0%} of its rate{least}"
    if role == "decode":
        bound = f"decoding, with {pair.decoding:,.0f} sequences a replica: {step}"
    largest, counts = (pair.decode, *pair.ladder)[-1], {f"{role}s": getattr(pair, f"{role}s") + 1}
    more = replace(pair, **counts, decode=largest, offered=None, ask=replace(pair.ask, rented=()))
    change = (
        f"another replica for {role} ({getattr(pair, role).piece}) would take {more.requests:,.3g} requests/s, "
        f"{more.tokens_per_chip:,.0f} tok/s per chip."
    )
    change += f" In a step {remedy}" if role == "decode" else ""
    return ServingAdvice(f"Pools are bound by {bound}: {change}", bound, change)


def _narrower_pools(asked: ServeAsked, config: Config) -> str:
    """The widest narrower format that pools can be quantised to, in a sentence of its own."""
    if asked.pinned or asked.question.quantize or asked.saved is not None:
        return ""
    formats = max(_had(asked, config), key=lambda one: bits(one.weights), default=None)
    if formats is None or bits(formats.weights) >= bits(config.plan.weights):
        return ""
    return f" Narrower weights speed up prefill and decode (--quantize {formats.weights})."


def _for_latency(asked: ServeAsked, config: Config, critical: float, configs: Sequence[Config]) -> str:
    tokens, tpot = config.tokens_per_chip, float(config.state.tpot)
    alike = [one for one in configs if (one.piece.chip, one.engine) == (config.piece.chip, config.engine)]
    fewer = [
        one
        for one in alike
        if one.plan.chips < config.plan.chips
        and (one.meets or not config.meets)
        and one.tokens_per_chip >= (1 - WORTH) * tokens
        and float(one.state.tpot) <= (1 + WORTH) * tpot
    ]
    ways = {
        "a larger batch costs little": config.batch < min(critical, config.most),
        "fewer chips for each replica lose little": bool(fewer),
        "drafts make more of each step (--accept)": not (config.drafts or asked.draft_by(config.engine)),
    }
    return ", and ".join(way for way, helps in ways.items() if helps) or "an engine that launches faster"


def _narrower(names: Iterable[str], than: str) -> str:
    """Those of some formats that are narrower than another, in words; empty where none is."""
    return " or ".join(dict.fromkeys(name for name in names if bits(name) < bits(than)))


def _for_weights(asked: ServeAsked, config: Config, critical: float) -> list[Advice]:
    shared = Advice(
        f"a larger batch reads the weights less often per token (compute takes over at {critical:,.0f} tokens a step)"
    )
    narrower = [one for one in _had(asked, config) if bits(one.weights) < bits(config.plan.weights)]
    if not narrower:
        return [shared]
    widest = max(narrower, key=lambda one: bits(one.weights))
    flag = f"--{'weights' if asked.pinned else 'quantize'} {widest.weights}"
    return [shared, *_in_formats(asked, config, flag, **vars(widest))]


def _in_formats(asked: ServeAsked, config: Config, flag: str, **formats: str) -> list[Advice]:
    """What the same plan and batch make in other formats, where it is worth a word."""
    if config.is_fleet:
        return []
    plan = replace(config.plan, **formats)
    found = at_batches(asked, replace(config, plan=plan), [config.batch])
    gain = found[0].tokens_per_chip / config.tokens_per_chip - 1 if found else 0.0
    if gain <= WORTH:
        return []
    flags = {"on": str(config.piece), "plan": str(plan), "engine": config.engine, "batch": str(config.batch)}
    return [Advice(f"{flag} makes {gain:+.0%} tokens at this batch", flags, TOKENS, gain)]


def _had(asked: ServeAsked, config: Config) -> list[Formats]:
    """The narrower formats that the model can be quantised to there."""
    chip = config.piece.chip
    return narrower_formats(known_engine(config.engine, chip), chip, asked.model, "any")


def _for_cache(asked: ServeAsked, config: Config) -> list[Advice]:
    chip = config.piece.chip
    taken = model_caches(known_engine(config.engine, chip), chip, asked.model)
    narrow = [name for name in taken if bits(name) < bits(config.plan.kv)]
    ways = [way for way in rules(config.engine).spread if way not in ("copy", config.plan.spread)]
    copied = config.plan.tensor > max(divisible(asked.model).kv_heads, default=0)  # else heads split it already
    split = f", or splitting the cache further (--kv-split {' or '.join(ways)})" if ways and copied else ""
    cache = _in_formats(asked, config, f"--kv-dtype {narrow[0]}", kv=narrow[0]) if narrow else []
    return [*cache, Advice(f"fewer or shorter sequences{split}")]


def _for_compute(asked: ServeAsked, config: Config, critical: float) -> str:
    narrow = _narrower((one.compute for one in _had(asked, config)), config.plan.compute)
    change = f"below {critical:,.0f} tokens a step loading the weights would bind"
    return (f"matmuls in {narrow}, or faster chips; " if narrow else "only more FLOP/s help; ") + change


def _for_wires(config: Config, report: ConfigReport) -> str:
    plan, seconds = config.plan, {row.name: row.expected_s for row in report.terms}
    axis = max(("tensor", "width", "context", "data"), key=lambda name: seconds.get(WIRES[name], 0.0))
    if axis == "data":
        return (
            f"the exchange between data={plan.data} ranks takes most; fewer of them, or an engine with faster exchanges"
        )
    return f"a degree below {axis}={getattr(plan, axis)}, or a larger batch for each message"


def _next_batch(asked: ServeAsked, config: Config, configs: Sequence[Config]) -> Advice:
    """What a noticeably larger batch of the same plan would do, and whether it would still meet the targets."""
    larger = [
        one
        for one in configs
        if (one.piece, one.plan, one.engine) == (config.piece, config.plan, config.engine) and one.batch > config.batch
    ]
    if not larger:
        if config.batch != config.most:
            queued = asked.ask.ttft is None and asked.batch is None
            return Advice("A larger batch only makes prompts wait for each other." if queued else "")
        limit = asked.engine_on(asked.targets[0][0]).scheduling.max_sequences * config.plan.data
        if config.batch == limit:
            return Advice(f"{config.batch:,} is the most that the engine runs at once (--max-seqs).")
        return Advice(f"{config.batch:,} is the largest batch that fits.")
    apart = [one for one in larger if one.batch >= NOTICEABLE * config.batch]
    other = min(apart, key=lambda one: one.batch) if apart else max(larger, key=lambda one: one.batch)
    gain = other.tokens_per_chip / config.tokens_per_chip - 1
    if gain < SEEN:
        return Advice("")
    over = []
    for name, (found, target) in asked.ask.times(other.state.ttft, other.state.tpot).items():
        goal = asked.goals.get(name)
        if found > target:
            asked_for = "pace kept without a target (--tpot)" if goal is None else f"{goal.text} asked for"
            # of a percentile, or near a batch that was run and missed, the mean tells nothing
            if goal is None or found > goal.seconds:
                over.append(f"{LATENCIES[name]} of {render(found, 's')} misses the {asked_for}")
            else:
                over.append(f"{LATENCIES[name]} misses the {asked_for}")
    each = "" if asked.ask.output == 1 else f", each in {render(float(other.state.tpot), 's')}"
    missing = f", but its {' and its '.join(over)}" if over else each
    flags = {"on": str(config.piece), "plan": str(config.plan), "engine": config.engine, "batch": str(other.batch)}
    return Advice(f"A batch of {other.batch:,} would make {gain:+.0%} tokens{missing}.", flags, TOKENS, gain)


def _not_looked_at(asked: ServeAsked) -> Advice:
    """What a chip named without a number leaves out for a model of many experts."""
    chip, piece = asked.targets[0]
    if piece is not None or len(asked.targets) > 1 or asked.pools_on(chip) or asked.saved is not None:
        return Advice("")
    named = replace(asked, targets=((chip, Slice(chip, (2 * NODE,))),))
    if isinstance(chip.network, Torus) or not named.pools_on(chip):
        return Advice("")
    on = f"{chip.name}:{2 * NODE}"
    text = f"Separate pools for prefill and decode were not considered; --on {on} considers them."
    return Advice(text, {"on": on}, FITS)


def _next_launch(asked: ServeAsked, config: Config) -> list[Advice]:
    """A default of the engine's launch that holds the plan back, with what the best batch at another value does."""
    chip, limits, told = config.piece.chip, asked.limits, list[Advice]()
    scheduling = asked.engine_on(chip, config.engine, config.chips).scheduling
    wider = {
        "token_budget": BUDGET if scheduling.max_tokens < BUDGET else None,
        "max_seqs": 2 * scheduling.max_sequences
        if config.batch == scheduling.max_sequences * config.plan.data
        else None,
    }
    options: list[tuple[str, dict[str, Any]]] = [
        (
            f"--{name.replace('_', '-')} {value} instead of the engine's default",
            {"limits": replace(limits, **{name: value})},
        )
        for name, value in wider.items()
        if value is not None and getattr(limits, name) is None and asked.batch is None
    ]
    if f",{NO_GRAPHS}" in asked.engine:
        eager = "leaving --enforce-eager out" if asked.question.plan else f"leaving {NO_GRAPHS} out"
        options.append((eager, {"engine": asked.engine.replace(f",{NO_GRAPHS}", "")}))
    for change, said in options:
        launched = replace(asked, **said)
        engine = launched.engine_on(chip, config.engine, config.chips)
        plan = config.plan
        formats = Formats(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)
        lot = Lot((config.piece,), stack([plan], formats, plan.spread))
        draft = asked.draft_by(config.engine)
        found = [one for one in judge(asked.model, lot, engine, asked.ask, draft=draft) if one.meets]
        other = best(found, asked.ask, 1)[0] if found else config
        gain = other.tokens_per_chip / config.tokens_per_chip - 1
        if gain >= WORTH:
            times = f"TTFT {render(float(other.state.ttft), 's')}, TPOT {render(float(other.state.tpot), 's')}"
            text = (
                f"{change[0].upper()}{change[1:]} would make {gain:+.0%} tokens (a batch of {other.batch:,}, {times})."
            )
            flags = {name: str(value) for name, value in vars(launched.limits).items() if value is not None}
            plan_flags = {"on": str(config.piece), "plan": str(config.plan), "engine": launched.engine or config.engine}
            told.append(Advice(text, flags | plan_flags | {"batch": str(other.batch)}, TOKENS, gain))
    return told


# How surely a configuration meets its targets: an expected TTFT or TPOT is the middle of a band, and the search takes
# batches up to the very target, so that the band's slow end is often beyond it. And what was aimed at where no target
# was given.


def beyond(expected: float, high: float | None, target: float | None) -> bool:
    """Whether a target is met in the middle of a band and missed at its slow end.

    >>> [beyond(*one, 0.040) for one in ((0.039, 0.046), (0.030, 0.035), (0.041, 0.046), (0.039, None))]
    [True, False, False, False]
    """
    if target is None or high is None or render(high, "s") == render(target, "s"):
        return False
    return expected <= target < high


def near_misses(work: ServeRequest, one: ConfigReport) -> list[tuple[str, float, float, float]]:
    """The targets that are met in the middle of a band alone: name, what is expected, the band's slow end and the
    target."""
    rows = [("TTFT", one.ttft_s, one.ttft_high_s, work.ttft_s)]
    rows += [("TPOT", one.tpot_s, one.tpot_high_s, work.tpot_s)] if work.output > 1 else []
    return [
        (name, value, high or 0.0, target or 0.0) for name, value, high, target in rows if beyond(value, high, target)
    ]


def margin_advice(work: ServeRequest, one: ConfigReport, configs: Sequence[Config]) -> list[Advice]:
    """Targets that are met in the middle of the band alone, with targets that leave room where one of the
    configurations meets them; that there was none to meet."""
    pace, quickest = work.pace_s or PACE_S, "" if work.pace_s == PACE_S else ", twice that of the quickest plan"
    least = f"{1 / pace:.3g} tokens/s or more (a TPOT of at most {render(pace, 's')}{quickest})"
    kept = f" Each user gets {least} where no TPOT is asked for." if work.pace_s else ""
    if not work.goals:
        most = "the lowest cost per token" if one.cost_usd_per_mtok is not None else "the most tokens per chip"
        most = f"the cheapest fleet of this plan for {work.rate_per_s:,.3g} requests/s" if work.rate_per_s else most
        return [
            Advice(
                f"No target was given, so this is the point of {most} at which prompts do not just queue (a TTFT of at "
                f"most {PATIENCE_S:.0f}s, or twice a prompt's own time); --ttft and --tpot set one.{kept}"
            )
        ]
    near = near_misses(work, one)
    if not near or one.violations:  # a target that is missed at the middle of the band is what there is to tell
        return [Advice(kept.strip())] if kept else []
    ends = " and ".join(f"{name} of {render(high, 's')}" for name, _, high, _ in near)
    at = {name: "" if goal.share is None else f"{goal.statistic}:" for name, goal in work.goals.items()}
    flags = {
        name.lower(): f"{at[name.lower()]}{render(target * value / high, 's')}" for name, value, high, target in near
    }
    lower = " ".join(f"--{name} {value}" for name, value in flags.items())
    held = "" if one.estimated else "; the band holds 4 of 5 published runs of this kind"
    means = "; TTFT and TPOT are means of requests, not percentiles" if set(work.statistics.values()) == {MEAN} else ""
    named = " and ".join(name for name, *_ in near)
    targets = f"The {named} {'targets are' if len(near) > 1 else 'target is'}"
    text = f"{targets} met at the middle of the band and missed at its slow end ({ends}{held}){means}."
    if any(goal.share for goal in work.goals.values()):  # only a run tells which targets would leave room
        return [Advice(f"{text}{kept}")]
    lowered = {name: target * value / high for name, value, high, target in near}
    if not any(_means_within(config, lowered) for config in configs):
        return [Advice(f"{text} Nothing here leaves room: more chips or looser targets would.{kept}")]
    return [Advice(f"{text} {lower} would leave room.{kept}", flags, MEETS)]


def _means_within(config: Config, targets: dict[str, float]) -> bool:
    """Whether the mean times of a configuration that meets its targets are within lower ones."""
    times = {"TTFT": float(config.state.ttft), "TPOT": float(config.state.tpot)}
    return config.meets and all(times[name] <= seconds for name, seconds in targets.items())
