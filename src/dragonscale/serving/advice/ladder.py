"""The ladder of launches: a plain one first, then what could be added to it.

The plain launch is what an engine does when it is given a model, chips and a plan: no drafts, a KV cache in the format
that the checkpoint implies, the checkpoint's weights, and replicas that do both prefill and decode. Each further rung
is one addition, as the flags that ask for it; the job of a rung is the job that these flags describe.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dragonscale.physics.hardware import Torus
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.levers import narrower_cache, narrower_weights
from dragonscale.serving.advice.search import ranked_by_format, search
from dragonscale.serving.engine.legality import rules
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.speculation import own_draft

Asked = TypeVar("Asked", bound=ServingJob)


@dataclass(frozen=True)
class Rung:
    """An addition to the plain launch, by the name and the flags by which people ask for it; the first has none.
    `lossless`: the answers of the model stay what they are."""

    name: str
    flags: dict[str, str] = field(default_factory=dict)
    lossless: bool = True


PLAIN = Rung("plain launch")


def ladder(job: ServingJob, best: Config) -> list[Rung]:
    """The plain launch, then what could be added to it where its best configuration is this one: only what the job
    leaves open and its engine has."""
    return [PLAIN, *_additions(job, best)]


def _additions(job: ServingJob, best: Config) -> Iterator[Rung]:
    chip, row = best.piece.chip, rules(best.engine)
    if job.draft is None and job.ask.output > 1 and row.mtp and best.plan.pipe == 1:
        count = _best_drafts(job)
        if count is not None:
            yield Rung("MTP", {"drafts": str(count)})
    cache = narrower_cache(job, best)
    if cache and not job.formats.kv and not job.formats.dtype and chip.format(cache) == "native":
        yield Rung(f"{cache} KV cache", {"kv_dtype": cache}, lossless=False)
    narrower = narrower_weights(job, best)
    is_native = narrower is not None and chip.format(narrower.weights) == "native"
    if narrower is not None and is_native and not job.has_fixed_formats and not job.formats.quantize:
        yield Rung(f"{narrower.weights} weights", {"quantize": narrower.weights}, lossless=False)
    if not isinstance(chip.network, Torus) and job.offers_pools(chip):
        yield Rung("disaggregation", {"disaggregate": ""})


def _best_drafts(job: ServingJob) -> int | None:
    """How many drafts by the checkpoint's own heads serve best, one where none would; None where it has none."""
    heads = own_draft(job.model)
    if heads is None:
        return None
    configs = search(replace(job, draft=heads))
    if not configs:
        return None
    return max(ranked_by_format(job, configs).native[0].drafts, 1)


def on_rung(job: Asked, rung: Rung) -> Asked:
    """The job that the flags of a rung describe."""
    flags = rung.flags
    if "drafts" in flags:
        count = int(flags["drafts"])
        return replace(job, draft=own_draft(job.model, (count,)), drafts_asked=count)
    if "kv_dtype" in flags:
        changed = replace(job, formats=replace(job.formats, kv=flags["kv_dtype"]))
        if job.plan is not None:
            changed = replace(changed, plan=replace(job.plan, kv=flags["kv_dtype"]))
        return changed
    if "quantize" in flags:
        return replace(job, formats=replace(job.formats, quantize=flags["quantize"]))
    if "disaggregate" in flags:
        return replace(job, disaggregate=True)
    return job
