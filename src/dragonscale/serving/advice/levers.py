"""What would make more tokens of the chips of a configuration: formats, batches, launch limits, replicas of a pool.

Each lever is judged before it is offered, and is worth a word where it brings more than predictions are wrong by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonscale.physics.hardware import Slice, Torus
from dragonscale.serving.advice.formats import known_engine
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.limits import solved_limits
from dragonscale.serving.advice.search import at_batches
from dragonscale.serving.engine.auto import NODE
from dragonscale.serving.engine.checkpoint import bits, narrower_formats
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.launch import NO_GRAPHS, LaunchLimits
from dragonscale.serving.engine.legality import rules
from dragonscale.serving.space.disaggregation import Pools
from dragonscale.serving.space.frontier import Config, judge
from dragonscale.serving.space.legal import divisible, model_caches
from dragonscale.serving.space.ranking import best
from dragonscale.serving.space.space import one_plan

# Tokens of an iteration with which prompts are prefilled at nearly all of a chip's rate: what vLLM, SGLang and
# TensorRT-LLM take by default on chips of 80 GB.
FULL_RATE_TOKENS = 8192

# Gain of tokens that is worth a change: steps are expected wrong by as much.
WORTH = 0.05

# Gain of tokens that does not round to +0%.
LEAST_GAIN = 0.005

# Ratio of batches from which the larger is another choice. Those between are searched only to find where a target is
# just met.
LARGER = 1.25


@dataclass(frozen=True)
class Gain:
    """A configuration after a change, and the fraction of tokens per chip that it makes more."""

    config: Config
    fraction: float


def gain_over(config: Config, changed: Config) -> Gain:
    """What a changed configuration makes more than the one before."""
    return Gain(changed, changed.tokens_per_chip / config.tokens_per_chip - 1)


def critical_batch(job: ServingJob, config: Config) -> float:
    """Tokens a step at which compute takes as long as the weights' reads; infinite where they always take longer."""
    first = next(solved_limits(job, config))
    return first.value if first.name == "critical batch" else math.inf


# Formats.


def quantizable(job: ServingJob, config: Config) -> list[Formats]:
    """The formats narrower than the checkpoint's that a model can be quantised to on the chip of a configuration."""
    chip = config.piece.chip
    return narrower_formats(known_engine(config.engine, chip), chip, job.model, "any")


def narrower_weights(job: ServingJob, config: Config) -> Formats | None:
    """The widest formats whose weights are narrower than a configuration's; None where there are none."""
    width = bits(config.plan.weights)
    narrower = [formats for formats in quantizable(job, config) if bits(formats.weights) < width]
    return max(narrower, key=lambda formats: bits(formats.weights), default=None)


def narrower_compute(job: ServingJob, config: Config) -> list[str]:
    """The formats of matmuls that are narrower than a configuration's."""
    width = bits(config.plan.compute)
    return list(dict.fromkeys(formats.compute for formats in quantizable(job, config) if bits(formats.compute) < width))


def narrower_cache(job: ServingJob, config: Config) -> str:
    """The first format of the KV cache that is narrower than a configuration's; empty where there is none."""
    chip, width = config.piece.chip, bits(config.plan.kv)
    supported = model_caches(known_engine(config.engine, chip), chip, job.model)
    return next((name for name in supported if bits(name) < width), "")


def other_spreads(job: ServingJob, config: Config) -> list[str]:
    """Other ways to split the KV cache over chips that now hold copies of it."""
    has_copies = config.plan.tensor > max(divisible(job.model).kv_heads, default=0)
    if not has_copies:
        return []
    return [way for way in rules(config.engine).spread if way not in ("copy", config.plan.spread)]


def gain_in_formats(job: ServingJob, config: Config, formats: Formats) -> Gain | None:
    """What the same plan and batch make in other formats, where that is worth the change."""
    if config.is_fleet:
        return None
    same_batch = at_batches(job, replace(config, plan=formats.applied_to(config.plan)), [config.batch])
    if not same_batch:
        return None
    gain = gain_over(config, same_batch[0])
    return gain if gain.fraction > WORTH else None


# Batches.


@dataclass(frozen=True)
class LatencyLevers:
    """What helps a step that waits for launches and small messages."""

    larger_batch: bool
    fewer_chips: bool
    drafts: bool


def latency_levers(job: ServingJob, config: Config, critical: float, configs: Sequence[Config]) -> LatencyLevers:
    """Whether a larger batch costs little, fewer chips a replica lose little, and tokens could be drafted."""
    tokens, tpot = config.tokens_per_chip, float(config.state.tpot)
    fewer_chips = any(
        other.plan.chips < config.plan.chips
        and (_meets(job, other) or not config.meets)
        and other.tokens_per_chip >= (1 - WORTH) * tokens
        and float(other.state.tpot) <= (1 + WORTH) * tpot
        for other in configs
        if (other.piece.chip, other.engine) == (config.piece.chip, config.engine)
    )
    return LatencyLevers(
        larger_batch=config.batch < min(critical, config.most),
        fewer_chips=fewer_chips,
        drafts=not (config.drafts or job.draft_by(config.engine)),
    )


def _meets(job: ServingJob, config: Config) -> bool:
    """Whether a configuration meets its targets, and those of the job, which are tighter where it was simulated."""
    times = job.ask.times(config.state.ttft, config.state.tpot).values()
    return config.meets and all(seconds <= target for seconds, target in times)


def larger_batches(config: Config, configs: Sequence[Config]) -> list[Config]:
    """The same plan with larger batches, of those that were searched."""
    key = config.piece, config.plan, config.engine
    same_plan = [other for other in configs if (other.piece, other.plan, other.engine) == key]
    return [other for other in same_plan if other.batch > config.batch]


def next_batch(config: Config, larger: Sequence[Config]) -> Gain | None:
    """The next larger batch that is another choice, or the largest, with what it makes; None where that is nothing."""
    separate = [other for other in larger if other.batch >= LARGER * config.batch]
    # where the range has no such batch, its end
    largest = max(larger, key=lambda other: other.batch)
    gain = gain_over(config, min(separate, key=lambda other: other.batch, default=largest))
    return gain if gain.fraction >= LEAST_GAIN else None


# The launch of the engine.


@dataclass(frozen=True)
class LaunchGain:
    """A change of an engine's launch, the job with it, and the best batch of the same plan there. `setting` is the
    limit of the launch that changes to `value`; empty where captured graphs are turned on."""

    setting: str
    value: int
    job: ServingJob
    gain: Gain


def launch_gains(job: ServingJob, config: Config) -> list[LaunchGain]:
    """Defaults of the engine's launch that hold a plan back, of those that the job leaves open."""
    gains: list[LaunchGain] = []
    for setting, value, changed in _other_launches(job, config):
        engine = changed.engine_on(config.piece.chip, config.engine, config.chips)
        plans = one_plan(config.piece, config.plan)
        judged = judge(job.model, plans, engine, job.ask, draft=job.draft_by(config.engine))
        meeting = [other for other in judged if other.meets]
        if not meeting:
            continue
        gain = gain_over(config, best(meeting, job.ask, 1)[0])
        if gain.fraction >= WORTH:
            gains.append(LaunchGain(setting, value, changed, gain))
    return gains


def _other_launches(job: ServingJob, config: Config) -> list[tuple[str, int, ServingJob]]:
    """Limits of the launch that are worth a try, and the job with each."""
    launches: list[tuple[str, int, ServingJob]] = []

    def widen(setting: str, value: int, limits: LaunchLimits) -> None:
        launches.append((setting, value, replace(job, limits=limits)))

    scheduling = job.engine_on(config.piece.chip, config.engine, config.chips).scheduling
    limits = job.limits
    if job.batch is None and limits.token_budget is None and scheduling.max_tokens < FULL_RATE_TOKENS:
        widen("token_budget", FULL_RATE_TOKENS, replace(limits, token_budget=FULL_RATE_TOKENS))
    is_full = config.batch == scheduling.max_sequences * config.plan.data
    if job.batch is None and limits.max_seqs is None and is_full:
        sequences = 2 * scheduling.max_sequences
        widen("max_seqs", sequences, replace(limits, max_seqs=sequences))
    if f",{NO_GRAPHS}" in job.engine:
        launches.append(("", 0, replace(job, engine=job.engine.replace(f",{NO_GRAPHS}", ""))))
    return launches


# Pools.


def one_more_replica(pools: Pools, role: str) -> Pools:
    """Pools with another replica for prefill or decode, at the largest batch, as many requests as they then take."""
    largest = (pools.decode, *pools.ladder)[-1]
    more = replace(pools, decode=largest, offered=None, ask=replace(pools.ask, rented=()))
    if role == "prefill":
        return replace(more, prefills=pools.prefills + 1)
    return replace(more, decodes=pools.decodes + 1)


def pools_left_out(job: ServingJob) -> Slice | None:
    """The slice with which separate pools would be searched, where only a chip is named and that leaves them out."""
    chip, slice_ = job.targets[0]
    if slice_ is not None or job.compares_chips or job.offers_pools(chip) or job.plan is not None:
        return None
    two_servers = Slice(chip, (2 * NODE,))
    on_slice = replace(job, targets=((chip, two_servers),))
    if isinstance(chip.network, Torus) or not on_slice.offers_pools(chip):
        return None
    return two_servers
