"""Changes to a job with which its targets would be met, each found by searching the changed job."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.serving.advice.formats import ANY_FORMAT, FormatRequest
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.refusals import possible
from dragonscale.serving.advice.search import excess, is_narrower, search
from dragonscale.serving.engine.checkpoint import bits
from dragonscale.serving.space.frontier import Ask, Config
from dragonscale.serving.space.ranking import replicas_for
from dragonscale.serving.steady.speculation import Draft, has_heads, head_part

# Chance that a trained head's draft is right, those before it right: about what EAGLE reports (arXiv 2401.15077).
ACCEPTED = 0.7


class ServingChange(StrEnum):
    """What a remedy changes of a job."""

    BATCH = "batch"
    PLAN = "plan"
    SLICE = "slice"
    FORMATS = "formats"
    QUANTIZE = "quantize"
    DRAFTS = "drafts"
    CHIP = "chip"


@dataclass(frozen=True)
class ServingRemedy:
    """A change, and the best configuration that it brings."""

    change: ServingChange
    config: Config

    @property
    def suffices(self) -> bool:
        """Whether the targets are met with it. Of drafts the nearest configuration counts too, which says that not
        even they would do."""
        return self.config.meets


def remedies(job: ServingJob, nearest: Config) -> list[ServingRemedy]:
    """The changes that would meet the targets of a job, of which the nearest configuration misses some."""
    changes = list(_changes_here(job, nearest))
    drafts = _with_drafts(job, nearest)
    if drafts is not None:
        changes.append(ServingRemedy(ServingChange.DRAFTS, drafts))
    chip = _on_another_chip(job)
    if chip is not None:
        changes.append(ServingRemedy(ServingChange.CHIP, chip))
    return changes


def _changes_here(job: ServingJob, nearest: Config) -> Iterator[ServingRemedy]:
    """What else the same chips could do: another batch, another plan, a larger slice, other or narrower formats."""
    chip, slice_ = job.targets[0]
    if job.batch is not None:
        meeting = _meeting(job, batch=None)
        here = [config for config in meeting if config.piece == nearest.piece] or meeting
        if here:
            yield ServingRemedy(
                ServingChange.BATCH, max(here, key=lambda config: (config.batch, config.tokens_per_chip))
            )

    if job.plan is not None:
        yield from _cheapest_with(ServingChange.PLAN, job, _meeting_at_any_batch(job, plan=None))
        return
    if slice_ is not None and not job.compares_chips:
        meeting = _meeting_at_any_batch(job, targets=((chip, None),))
        yield from _cheapest_with(
            ServingChange.SLICE, job, [config for config in meeting if config.chips > slice_.chips]
        )
    if job.formats.is_pinned:
        unpinned = FormatRequest(quantize=job.formats.quantize)
        yield from _cheapest_with(ServingChange.FORMATS, job, _meeting_at_any_batch(job, formats=unpinned))
    elif not job.formats.quantize:
        # `any` has the checkpoint's own formats too, which are known to miss
        quantized = _meeting_at_any_batch(job, formats=FormatRequest(quantize=ANY_FORMAT))
        narrower = [config for config in quantized if is_narrower(config, job.model)]
        yield from _cheapest_with(ServingChange.QUANTIZE, job, narrower)


def _meeting(job: ServingJob, **changes: Any) -> list[Config]:
    """The configurations of a changed job that meet its targets."""
    return [config for config in search(replace(job, **changes)) if config.meets]


def _meeting_at_any_batch(job: ServingJob, **changes: Any) -> list[Config]:
    """The configurations of a changed job that meet its targets, with the batch that is asked for or else any."""
    meeting = _meeting(job, **changes)
    if not meeting and job.batch is not None:
        return _meeting(job, batch=None, **changes)
    return meeting


def _cheapest_with(change: ServingChange, job: ServingJob, meeting: Sequence[Config]) -> Iterator[ServingRemedy]:
    """A change with the cheapest configuration that it brings; nothing where it brings none."""
    config = cheapest(job.ask, meeting)
    if config is not None:
        yield ServingRemedy(change, config)


def cheapest(ask: Ask, configs: Sequence[Config]) -> Config | None:
    """The cheapest configuration in the widest weights, with the batch that makes most tokens.

    With a rate the fleet that serves it is what costs: many cheap replicas may cost more than a few dear ones."""
    # replicas are counted one by one: the slice that was asked for is not the one that would be rented
    by_replica = replace(ask, rented=())

    def order(config: Config) -> tuple[float, ...]:
        replicas = 1 if ask.rate is None else replicas_for(config, by_replica)
        chips = replicas * config.chips
        price = float(config.piece.chip.price or math.inf)
        return -bits(config.plan.weights), chips * price, chips, -config.tokens_per_chip

    return min(configs, key=order, default=None)


def _with_drafts(job: ServingJob, nearest: Config) -> Config | None:
    """The best configuration with speculative decoding, for a time per token that is missed without it; the nearest
    one where that misses it too. None where drafts are no remedy."""
    ask = job.ask
    misses_step = ask.step is not None and float(nearest.state.tpot) > ask.step
    if not misses_step or job.draft is not None or ask.output == 1 or has_heads(job.model):
        return None  # the model's own heads are a rung of the ladder, which is tried first
    configs = search(replace(job, draft=Draft(ACCEPTED, part=head_part(job.model))))
    meeting = [config for config in configs if config.meets]
    if meeting:
        return max(meeting, key=lambda config: config.tokens_per_chip)
    return min(configs, key=lambda config: excess(ask, config), default=None)


def _on_another_chip(job: ServingJob) -> Config | None:
    """The cheapest configuration on another chip of the catalogue that has a price, in the same formats."""
    if job.everywhere:
        return None
    tried = {chip.name for chip, _ in job.targets}
    others = []
    for name in chip_names():
        chip = load_chip(name)
        if chip.name not in tried and chip.price is not None:  # cheapest is not defined without a price
            others.append((chip, None))
    elsewhere = replace(job, plan=None, targets=tuple(others))
    return cheapest(job.ask, _meeting(elsewhere, targets=possible(elsewhere).targets))
