"""Sentences about what bounds a configuration and what to change, and about how surely targets are met."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonscale.commands.advised import FITS, MEETS, TOKENS, Advice
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, ServeRequest, ServingAdvice
from dragonscale.physics.units import render
from dragonscale.serving.advice import levers
from dragonscale.serving.advice.bills import STEP_SCORES, WIRES
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.space.disaggregation import PooledConfig, Pools
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.narrowing import PACE_S, PATIENCE_S
from dragonscale.serving.steady.targets import LATENCIES, MEAN

# What bounds a step that is neither reads nor FLOPs.
LATENCY = "latency: small kernels, launches and collectives' latency"

# Share of the time from which prefill is what bounds a replica.
MOSTLY = 0.5
NOTHING = Advice("")


def advice(job: ServeAsked, config: Config, row: ConfigReport, configs: Sequence[Config]) -> ServingAdvice:
    """What takes most of the best configuration's time and what to change."""
    if job.ask.output == 1:
        return _prefill_alone(row)
    remedies = _against_bound(job, config, row, configs)
    remedy = f"{', '.join(advice.text for advice in remedies)}."
    bound = config.bound_by
    if bound == "latency":
        step = f"{render(config.decode_s, 's')} a step against {render(row.roofline_s or 0.0, 's')}"
        bound = f"{LATENCY} ({step} at datasheet rates)"
    elif bound == "cache reads":
        bound = STEP_SCORES
    if isinstance(config, PooledConfig):
        return _of_pools(config.pools, bound, remedy, _narrower_pools(job, config))

    further = [_next_batch(job, config, configs), *_next_launch(job, config), _pools_left_out(job)]
    change = " ".join([remedy, *(advice.text for advice in further if advice.text)])
    followed = tuple(advice for advice in (*remedies, *further) if advice.flags)
    prefill_share = float(config.state.added * config.state.requests)  # of the time of a replica
    if prefill_share > MOSTLY:
        bound = f"prefill ({min(prefill_share, 1):.0%} of the time), and decode steps by {bound}"
        change = f"cached prefixes (--cached) and narrower matmuls shorten prefill; in decode steps {change}"
        brief = "cached prefixes (--cached) and narrower matmuls shorten prefill."
        return ServingAdvice(f"Bound by {bound}: {change}", bound, change, followed, brief)
    brief = _briefly(job, config, remedies, further)
    return ServingAdvice(f"Decoding is bound by {bound}: {change}", bound, change, followed, brief)


def _briefly(job: ServeAsked, config: Config, remedies: Sequence[Advice], further: Sequence[Advice]) -> str:
    """What would help in a line: another launch, a larger batch, what a larger one takes, or else the first remedy.
    Other formats stand beside the plain launch."""
    next_batch, *launches = further
    for advice in (*launches, next_batch):
        if advice.flags:
            return advice.text
    if config.batch == config.most and job.batch is None:
        if config.batch == _sequences_at_once(job, config):
            return f"a larger --max-seqs: {config.batch:,} is the most that the engine runs at once."
        return f"more memory for the KV cache: {config.batch:,} is the largest batch that fits."
    return next((f"{advice.text}." for advice in remedies if not advice.flags), "")


def _sequences_at_once(job: ServeAsked, config: Config) -> int:
    """The most sequences of a replica: each data rank has as many places as the engine's launch says."""
    return job.engine_on(job.targets[0][0]).scheduling.max_sequences * config.plan.data


def _prefill_alone(row: ConfigReport) -> ServingAdvice:
    """The advice for requests of one token, which have no decode steps."""
    longest = row.prefill_terms[0]
    share = longest.expected_s / sum(term.expected_s for term in row.prefill_terms)
    bound = f"prefill, of which {longest.name} takes {share:.0%}"
    change = "faster chips, narrower matmuls or cached prefixes (--cached) shorten it."
    return ServingAdvice(f"Bound by {bound}: {change}", bound, change)


def _against_bound(job: ServeAsked, config: Config, row: ConfigReport, configs: Sequence[Config]) -> list[Advice]:
    """What shortens a decode step, by what bounds it."""
    critical = levers.critical_batch(job, config)  # tokens a step
    match config.bound_by:
        case "weight reads":
            return _for_weights(job, config, critical)
        case "cache reads":
            return _for_cache(job, config)
        case "compute":
            return [Advice(_for_compute(job, config, critical))]
        case "collectives":
            return [Advice(_for_collectives(config, row))]
        case "latency":
            return [Advice(_for_latency(job, config, critical, configs))]
        case _:
            return [Advice("fewer chips or a larger batch, so that steps outlast the host's work for them")]


def _for_weights(job: ServeAsked, config: Config, critical: float) -> list[Advice]:
    """A larger batch, and narrower weights where they make more tokens."""
    remedies = [
        Advice(
            f"a larger batch reads the weights less often per token (compute takes over at {critical:,.0f} tokens a "
            "step)"
        )
    ]
    narrower = levers.narrower_weights(job, config)
    if narrower is not None:
        flag = "--weights" if job.has_fixed_formats else "--quantize"
        remedies += _in_formats(job, config, narrower, f"{flag} {narrower.weights}")
    return remedies


def _for_cache(job: ServeAsked, config: Config) -> list[Advice]:
    """A narrower cache where that makes more tokens, less of it, or less of it on each chip."""
    remedies: list[Advice] = []
    kv = levers.narrower_cache(job, config)
    if kv:
        formats = replace(Formats.of(config.plan), kv=kv)
        remedies += _in_formats(job, config, formats, f"--kv-dtype {kv}")
    text = "shorter prompts or outputs"
    ways = levers.other_spreads(job, config)
    if ways:
        text += f", or splitting the cache further (--kv-split {' or '.join(ways)})"
    return [*remedies, Advice(text)]


def _in_formats(job: ServingJob, config: Config, formats: Formats, flag: str) -> list[Advice]:
    """What the same plan and batch make in other formats, where it is worth a word."""
    gain = levers.gain_in_formats(job, config, formats)
    if gain is None:
        return []
    text = f"{flag} makes {gain.fraction:+.0%} tokens at this batch"
    return [Advice(text, _flags(gain.config), TOKENS, gain.fraction)]


def _flags(config: Config) -> dict[str, str]:
    """The flags that ask for a configuration itself."""
    return {"on": str(config.piece), "plan": str(config.plan), "engine": config.engine, "batch": str(config.batch)}


def _for_compute(job: ServeAsked, config: Config, critical: float) -> str:
    narrower = levers.narrower_compute(job, config)
    change = f"matmuls in {' or '.join(narrower)}, or faster chips" if narrower else "only more FLOP/s help"
    return f"{change}; below {critical:,.0f} tokens a step loading the weights would bind"


def _for_collectives(config: Config, row: ConfigReport) -> str:
    # the axis whose collectives take most of a decode step
    seconds = {term.name: term.expected_s for term in row.terms}
    axis = max(("tensor", "width", "context", "data"), key=lambda name: seconds.get(WIRES[name], 0.0))
    degree = getattr(config.plan, axis)
    if axis == "data":
        return f"the exchange between data={degree} ranks takes most; fewer of them, or an engine with faster exchanges"
    return f"a degree below {axis}={degree}, or a larger batch for each message"


def _for_latency(job: ServeAsked, config: Config, critical: float, configs: Sequence[Config]) -> str:
    helps = levers.latency_levers(job, config, critical, configs)
    ways: list[str] = []
    if helps.larger_batch:
        ways.append("a larger batch costs little")
    if helps.fewer_chips:
        ways.append("fewer chips for each replica lose little")
    if helps.drafts:
        ways.append("drafts make more of each step (--accept)")
    return ", and ".join(ways) or "an engine that launches faster"


def _of_pools(pools: Pools, step_bound: str, remedy: str, narrower: str = "") -> ServingAdvice:
    """Which pool has no more to give, and what another replica of it would bring; where it is the one that decodes,
    also what shortens its steps. `narrower` is a sentence about formats."""
    if pools.prefill_binds:
        role, replica = "prefill", pools.prefill
        bound = f"prefill, at {pools.prefill_load:.0%} of its rate"
        if pools.ask.ttft is not None:
            bound += " as far as the TTFT asked for allows"
    else:
        role, replica = "decode", pools.decode
        bound = f"decoding, with {pools.decoding:,.0f} sequences a replica: {step_bound}"
    brief = change = _another_replica(pools, role, str(replica.piece))
    if role == "decode":
        change += f" In a step {remedy}"
    if narrower:
        change += f" {narrower}"
    return ServingAdvice(f"Pools are bound by {bound}: {change}", bound, change, brief=brief)


def _narrower_pools(job: ServeAsked, config: Config) -> str:
    """That pools could be quantised, in a sentence; empty where formats are given."""
    if job.has_fixed_formats or job.formats.quantize:
        return ""
    narrower = levers.narrower_weights(job, config)
    if narrower is None:
        return ""
    return f"Narrower weights speed up prefill and decode (--quantize {narrower.weights})."


def _another_replica(pools: Pools, role: str, where: str) -> str:
    more = levers.one_more_replica(pools, role)
    return (
        f"another replica for {role} ({where}) would take {more.requests:,.3g} requests/s, "
        f"{more.tokens_per_chip:,.0f} tok/s per chip."
    )


def _next_batch(job: ServeAsked, config: Config, configs: Sequence[Config]) -> Advice:
    """What a noticeably larger batch of the same plan would do, and whether it would still meet the targets."""
    larger = levers.larger_batches(config, configs)
    if not larger:
        return Advice(_why_no_larger_batch(job, config))
    gain = levers.next_batch(config, larger)
    if gain is None:
        return NOTHING
    misses = _misses(job, gain.config)
    text = f"A batch of {gain.config.batch:,} would make {gain.fraction:+.0%} tokens"
    if misses:
        text += f", but its {' and its '.join(misses)}"
    elif job.ask.output > 1:
        text += f", each in {render(float(gain.config.state.tpot), 's')}"
    return Advice(f"{text}.", _flags(gain.config), TOKENS, gain.fraction)


def _why_no_larger_batch(job: ServeAsked, config: Config) -> str:
    if config.batch != config.most:
        if job.ask.ttft is not None or job.batch is not None:
            return ""
        return "A larger batch only makes prompts wait for each other."
    if config.batch == _sequences_at_once(job, config):
        return f"{config.batch:,} is the most that the engine runs at once (--max-seqs)."
    return f"{config.batch:,} is the largest batch that fits."


def _misses(job: ServeAsked, config: Config) -> list[str]:
    """The targets that a configuration misses, as clauses."""
    clauses: list[str] = []
    for name, (seconds, target) in job.ask.times(config.state.ttft, config.state.tpot).items():
        if seconds <= target:
            continue
        goal = job.goals.get(name)
        wanted = "pace kept without a target (--tpot)" if goal is None else f"{goal.text} asked for"
        # of a percentile, or near a batch that was run and missed, the mean tells nothing
        if goal is None or seconds > goal.seconds:
            clauses.append(f"{LATENCIES[name]} of {render(seconds, 's')} misses the {wanted}")
        else:
            clauses.append(f"{LATENCIES[name]} misses the {wanted}")
    return clauses


def _next_launch(job: ServeAsked, config: Config) -> list[Advice]:
    """Defaults of the engine's launch that hold the plan back, with what the best batch without each does."""
    sentences: list[Advice] = []
    for launch in levers.launch_gains(job, config):
        best, gain, limits = launch.gain.config, launch.gain.fraction, launch.job.limits
        if launch.setting:
            change = f"--{launch.setting.replace('_', '-')} {launch.value} instead of the engine's default"
        elif job.question.plan:
            change = "Leaving --enforce-eager out"
        else:
            change = f"Leaving {levers.NO_GRAPHS} out"
        times = f"TTFT {render(float(best.state.ttft), 's')}, TPOT {render(float(best.state.tpot), 's')}"
        text = f"{change} would make {gain:+.0%} tokens (a batch of {best.batch:,}, {times})."
        flags: dict[str, str] = {}
        for name in ("max_seqs", "token_budget", "memory_fraction"):
            if getattr(limits, name) is not None:
                flags[name] = str(getattr(limits, name))
        flags |= _flags(best) | {"engine": launch.job.engine or config.engine}
        sentences.append(Advice(text, flags, TOKENS, gain))
    return sentences


def _pools_left_out(job: ServeAsked) -> Advice:
    """That a chip named without a number leaves out separate pools for a model of many experts."""
    slice_ = levers.pools_left_out(job)
    if slice_ is None:
        return NOTHING
    on = f"{slice_.chip.name}:{slice_.chips}"
    text = f"Separate pools for prefill and decode were not considered; --on {on} --disaggregate considers them."
    return Advice(text, {"on": on}, FITS)


# How surely a configuration meets its targets: an expected TTFT or TPOT is the middle of a band, and the search takes
# batches up to the very target, so that the band's slow end is often beyond it. And what was aimed at where no target
# was given.


def beyond(expected: float, high: float | None, target: float | None) -> bool:
    """Whether a target is met in the middle of a band and missed at its slow end.

    >>> [beyond(*row, 0.040) for row in ((0.039, 0.046), (0.030, 0.035), (0.041, 0.046), (0.039, None))]
    [True, False, False, False]
    """
    if target is None or high is None or render(high, "s") == render(target, "s"):
        return False
    return expected <= target < high


@dataclass(frozen=True)
class NearMiss:
    """A latency whose target is met in the middle of its band and missed at the slow end, in seconds."""

    name: str
    expected: float
    high: float
    target: float

    @property
    def lowered(self) -> float:
        """The target with which the slow end would be within the one that was asked for."""
        return self.target * self.expected / self.high


def near_misses(work: ServeRequest, row: ConfigReport) -> list[NearMiss]:
    """The targets that are met in the middle of a band alone."""
    times = [("TTFT", row.ttft_s, row.ttft_high_s, work.ttft_s)]
    if work.output > 1:
        times.append(("TPOT", row.tpot_s, row.tpot_high_s, work.tpot_s))
    misses: list[NearMiss] = []
    for name, expected, high, target in times:
        if high is not None and target is not None and beyond(expected, high, target):
            misses.append(NearMiss(name, expected, high, target))
    return misses


def margin_advice(work: ServeRequest, row: ConfigReport, configs: Sequence[Config]) -> list[Advice]:
    """Targets that are met in the middle of the band alone, with targets that leave room where one of the
    configurations meets them; or that there was no target to meet."""
    pace = _pace_text(work)
    if not work.goals:
        return [Advice(_no_target_text(work, row) + pace)]
    misses = near_misses(work, row)
    if not misses or row.violations:  # a target that is missed in the middle of the band is what there is to tell
        return [Advice(pace.strip())] if pace else []

    named = " and ".join(miss.name for miss in misses)
    ends = " and ".join(f"{miss.name} of {render(miss.high, 's')}" for miss in misses)
    if not row.estimated:
        ends += "; the band holds 4 of 5 published runs of this kind"
    targets = "targets are" if len(misses) > 1 else "target is"
    text = f"The {named} {targets} met at the middle of the band and missed at its slow end ({ends})"
    if set(work.statistics.values()) == {MEAN}:
        text += "; TTFT and TPOT are means of requests, not percentiles"
    if any(goal.share for goal in work.goals.values()):  # only a run tells which targets would leave room
        return [Advice(f"{text}.{pace}")]
    lowered = {miss.name: miss.lowered for miss in misses}
    if not any(_means_within(config, lowered) for config in configs):
        return [Advice(f"{text}. Nothing here leaves room: more chips or looser targets would.{pace}")]
    flags = {name.lower(): render(seconds, "s") for name, seconds in lowered.items()}
    lower = " ".join(f"--{name} {value}" for name, value in flags.items())
    return [Advice(f"{text}. {lower} would leave room.{pace}", flags, MEETS)]


def _no_target_text(work: ServeRequest, row: ConfigReport) -> str:
    """What is optimised where no target says what to meet."""
    point = "the most tokens per chip"
    if work.rate_per_s:
        point = f"the cheapest fleet of this plan for {work.rate_per_s:,.3g} requests/s"
    elif row.cost_usd_per_mtok is not None:
        point = "the lowest cost per token"
    return (
        f"No target was given, so this is the point of {point} at which prompts do not just queue (a TTFT of at "
        f"most {PATIENCE_S:.0f}s, or twice a prompt's own time); --ttft and --tpot set one."
    )


def _pace_text(work: ServeRequest) -> str:
    """The pace that each user gets where no TPOT is asked for, as a sentence that follows another; else empty."""
    if not work.pace_s:
        return ""
    tpot = render(work.pace_s, "s")
    if work.pace_s != PACE_S:
        tpot += ", twice that of the quickest plan"
    return (
        f" Each user gets {1 / work.pace_s:.3g} tokens/s or more (a TPOT of at most {tpot}) where no TPOT is asked for."
    )


def _means_within(config: Config, targets: dict[str, float]) -> bool:
    """Whether the mean times of a configuration that meets its targets are within lower ones."""
    times = {"TTFT": float(config.state.ttft), "TPOT": float(config.state.tpot)}
    return config.meets and all(times[name] <= seconds for name, seconds in targets.items())
