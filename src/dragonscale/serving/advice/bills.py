"""Where a configuration's time and memory go: the ledgers of a decode step and of a prompt, the tensors on a chip.

Lines carry the names of the terms that an answer shows, which are their groups (`step_terms`). A prompt is the whole of
one that runs alone, all its chunks together; `phase` then says which chunk a line is of.
"""

from dataclasses import dataclass, replace

import msgspec
import numpy

from dragonscale.models.transformer import Transformer
from dragonscale.physics.numbers import first_number
from dragonscale.plan.ledger import HeldLine, Ledger, LedgerLine, plan_ledger
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.engine import adjust
from dragonscale.serving.iteration.capacity import Capacity, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.ledger import iteration_ledger
from dragonscale.serving.iteration.phases import Iteration, IterationCost, decode, iteration_cost, prefill
from dragonscale.serving.iteration.resident_memory import cache_lines, weight_lines, workspace_lines
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.prompting import chunks_of

# Attention itself in a decode step, which reads the cache.
STEP_SCORES = "decode attention (KV reads)"

# Attention itself in a prompt, which multiplies.
PROMPT_SCORES = "attention (QK, softmax, PV)"

# What moves over each axis of a plan.
WIRES = {
    "tensor": "tensor collectives",
    "width": "width collectives",
    "context": "context collectives",
    "data": "expert exchange",
    "pipe": "pipeline hops",
}

# Axes of a mesh that are one axis of a plan.
_PARTS = {"tensor": {"expert", "tensor", "share"}, "data": {"data", "expert"}}

# Parts that a mesh cuts the tensor ways of a plan into, which a plan knows as one axis.
_PLAN_AXIS = {"expert": "tensor", "share": "tensor"}

# Seconds of a term from which it is listed.
SHOWN_S = 1e-12

# Tokens of a request that are allowed to a model of unknown context.
UNKNOWN_CONTEXT = 2.0**30

# Part of the cache's tokens below which windows that keep all tokens are worth a word.
LEAST_LOST = 0.7


def deployed(job: ServingJob, config: Config) -> Deployment:
    """The deployment of one replica of a configuration; of pools one that decodes."""
    return Deployment(job.model, config.piece, config.plan, job.engine_on(config.piece.chip, config.engine))


def prefill_deployed(job: ServingJob, config: Config) -> Deployment:
    """The deployment of a replica that prefills: of pools one of those that do nothing else."""
    if isinstance(config, PooledConfig):
        return deployed(job, config.pools.prefill)
    return deployed(job, config)


def iterations(job: ServingJob, batch: int, deployment: Deployment) -> dict[str, Iteration]:
    """A decode step at the mean context, and a prefill of one prompt for each data rank and stage."""
    ask, plan = job.ask, deployment.plan
    tokens = min(ask.new, deployment.engine.scheduling.max_tokens)
    return {
        "decode": decode(batch, ask.context),
        "prefill": prefill(tokens, plan.data * plan.pipe, ask.past),
    }


def iteration_ledgers(job: ServingJob, config: Config) -> dict[str, Ledger]:
    """The ledgers of a prefill and of a decode step of a configuration, in the terms of the engine's iterations."""
    ledgers: dict[str, Ledger] = {}
    for phase, deployment in (("prefill", prefill_deployed(job, config)), ("decode", deployed(job, config))):
        step = iterations(job, config.batch, deployment)[phase]
        ledgers[phase] = iteration_ledger(deployment, step)
    return ledgers


# The bills of a configuration: every kernel, move and wait, and every tensor that is held.


@dataclass(frozen=True)
class PromptChunks:
    """Equal iterations of a prompt that runs alone: how many, and of each its new tokens and those cached before."""

    count: float
    tokens: float
    past: float


def prompt_chunks(job: ServingJob, deployment: Deployment) -> list[PromptChunks]:
    """The iterations of a prompt that runs by itself: the last one, and those before it at their mean context."""
    ask = job.ask
    cut = chunks_of(deployment, ask.new, ask.past, numpy.zeros(1))
    count, size = first_number(cut.count), first_number(cut.size)
    chunks = [PromptChunks(1.0, first_number(cut.last), ask.past + (count - 1) * size)]
    if count > 1:
        chunks.append(PromptChunks(count - 1, size, ask.past + (count - 2) / 2 * size))
    return chunks


def config_bills(job: ServingJob, config: Config) -> dict[str, Ledger]:
    """The bills of a configuration: of pools those of a decode step on one and of a prompt on the other."""
    bills = iteration_bills(job, deployed(job, config), config.batch)
    if isinstance(config, PooledConfig):
        bills["prefill"] = iteration_bills(job, prefill_deployed(job, config), 1)["prefill"]
    return bills


def iteration_bills(job: ServingJob, deployment: Deployment, batch: int) -> dict[str, Ledger]:
    """The bills of a decode step, and of a prompt that runs alone."""
    step = iteration_cost(deployment, iterations(job, batch, deployment)["decode"])
    chunks = prompt_chunks(job, deployment)
    phases = ["prefill"] if len(chunks) == 1 else ["last chunk", "earlier chunks"]
    lines: list[LedgerLine] = []
    for chunk, phase in zip(chunks, phases, strict=True):
        cost = iteration_cost(deployment, prefill(chunk.tokens, 1, chunk.past))
        ledger = _with_term_names(deployment, cost, phase, PROMPT_SCORES)
        lines += [replace(line, times=line.times * chunk.count) for line in ledger.lines]
    return {"decode": _with_term_names(deployment, step, "decode", STEP_SCORES), "prefill": Ledger(lines)}


def _with_term_names(deployment: Deployment, cost: IterationCost, phase: str, scores: str) -> Ledger:
    """An iteration's ledger under the names of an answer's terms; axes are those of more than one chip."""
    names = {"scores": scores, "attention": "attention projections", "sampling": "sampling and launch gaps"}
    sizes = deployment.axis_sizes
    lines: list[LedgerLine] = []
    for line in plan_ledger(cost.ledger(phase), 0).lines:
        term = wire_name(line.axes) if line.moves else names.get(line.term, line.term)
        axes = tuple(dict.fromkeys(_PLAN_AXIS.get(axis, axis) for axis in line.axes if sizes.get(axis, 1) > 1))
        # a move counts where it crosses chips, even if nobody waits for it; a kernel where it takes time
        counts = bool(axes) if line.moves else float(line.total("expected_s")) > 0
        if counts:
            lines.append(replace(line, term=term, axes=axes, phase=phase))
    return Ledger(lines)


def wire_name(axes: tuple[str, ...]) -> str:
    """What moves over some axes of a mesh, in a plan's terms."""
    for axis, name in WIRES.items():
        if set(axes) <= _PARTS.get(axis, {axis}):
            return name
    return f"collectives over {', '.join(axes)}"


class StepTerm(msgspec.Struct):
    """A line of an iteration's bill; `roofline_s` is its bound at datasheet rates. Expected seconds
    add up to the step."""

    name: str
    roofline_s: float
    expected_s: float
    bytes: float
    flops: float


def step_terms(ledger: Ledger) -> list[StepTerm]:
    """The terms of an iteration, longest first: groups of its lines, whose expected seconds add up to it. Bytes are
    those of HBM, of moves those of the arrays as one group sees them."""
    bound, exposed, hbm, moved, flops = (
        ledger.by("term", name) for name in ("bound_s", "exposed_s", "hbm_bytes", "volume", "flops")
    )
    terms: list[StepTerm] = []
    for name in bound:
        term = StepTerm(
            name,
            roofline_s=first_number(bound[name]),
            expected_s=first_number(exposed[name]),
            bytes=first_number(hbm[name] + moved[name]),
            flops=first_number(flops[name]),
        )
        if term.expected_s > SHOWN_S:
            terms.append(term)
    return sorted(terms, key=lambda term: -term.expected_s)


def held_bill(job: ServingJob, batch: int, deployment: Deployment) -> Ledger:
    """The tensors on a chip: weights, the caches of a batch of sequences at full length, workspace."""
    length = capacity(deployment).in_pages(float(job.ask.prompt + job.ask.output))
    lines: list[HeldLine] = list(weight_lines(deployment))
    lines += [replace(line, bytes=line.bytes * batch) for line in cache_lines(deployment, length)]
    lines += workspace_lines(deployment)
    return Ledger([], [replace(line, bytes=first_number(line.bytes)) for line in lines])


# What fills a chip.


class MemoryUse(msgspec.Struct):
    """What fills a chip. `left_alone_bytes` is what the engine does not touch; `sequence_bytes` is what a sequence of
    full length takes of a chip (the mean over data ranks), `token_bytes` that for each of its tokens: windows that are
    full and fixed states are in it. `pages` and `tokens` count those of the whole replica, for sequences of this
    length, with the ones in use; `wasted` is the part of the pages in use that holds nothing (half a page of each
    sequence)."""

    weights_bytes: float
    cache_bytes: float
    working_bytes: float
    reserve_bytes: float
    free_bytes: float
    left_alone_bytes: float
    page_tokens: int
    pages: int
    tokens: float
    wasted: float
    sequence_bytes: float = 0.0
    token_bytes: float = 0.0
    kv_cache_tokens: int = 0
    """Tokens of cache of the whole replica as engines print them when they start."""
    largest_context: int = 0
    """Tokens of the longest request that fits, prompt and output together; no more than the model was made for."""
    model_context: int = 0
    """Tokens that the model was made for; 0 where that is not known."""
    whole_windows_tokens: int = 0
    """Tokens of cache where windows keep all tokens, as under vLLM without its hybrid KV cache manager; 0 where that
    is no less."""
    launched_context: int = 0
    """Tokens that the launch takes at most; 0 where it does not say."""
    ranks: int = 1
    """Ranks that requests are dealt out to, each with its part of these tokens."""

    def parts(self) -> dict[str, float]:
        """Bytes of the whole chip by what they are for."""
        return {
            "weights": self.weights_bytes,
            "KV cache": self.cache_bytes,
            "workspace": self.working_bytes,
            "reserve": self.reserve_bytes,
            "free for KV cache": self.free_bytes,
            "unused": self.left_alone_bytes,
        }


def memory_use(job: ServingJob, config: Config) -> MemoryUse:
    """What fills a chip of a configuration; of pools one that decodes."""
    memory = capacity(deployed(job, config))
    cache_bytes = config.hbm_bytes - first_number(memory.weights + memory.working + memory.reserve)
    page = max(memory.page, 1)
    length = first_number(memory.in_pages(float(job.ask.prompt + job.ask.output)))
    sequence_bytes = first_number(memory.sequence(length))
    tokens = first_number(memory.cache) / max(sequence_bytes / length, 1e-9)
    return MemoryUse(
        weights_bytes=first_number(memory.weights),
        cache_bytes=cache_bytes,
        working_bytes=first_number(memory.working),
        reserve_bytes=float(memory.reserve),
        free_bytes=first_number(memory.cache) - cache_bytes,
        left_alone_bytes=first_number(memory.hbm - memory.usable),
        page_tokens=page,
        pages=int(tokens // page),
        tokens=tokens,
        # on average the last page of a sequence is half empty
        wasted=(page - 1) / 2 / (job.ask.context + (page - 1) / 2),
        sequence_bytes=sequence_bytes,
        token_bytes=sequence_bytes / length,
        kv_cache_tokens=int(memory.printed_tokens(longest_served(job))),
        whole_windows_tokens=_whole_windows_tokens(job, config, memory),
        largest_context=_largest_context(job, config, memory),
        model_context=job.model.context or 0,
        launched_context=job.served_length or 0 if job.length_said else 0,
        ranks=round(first_number(memory.places)),
    )


def _whole_windows_tokens(job: ServingJob, config: Config, memory: Capacity) -> int:
    """Tokens of cache if windows kept all tokens; 0 of engines and models where that is no less."""
    deployment = deployed(job, config)
    if not deployment.engine.memory.even_pages:
        return 0
    engine = adjust(deployment.launched_engine, memory={"whole_windows": True})
    tokens = capacity(replace(deployment, launched_engine=engine)).printed_tokens(longest_served(job))
    return int(tokens) if tokens < LEAST_LOST * memory.printed_tokens(longest_served(job)) else 0


def longest_served(job: ServingJob) -> float:
    """Tokens of the longest request that is served: what a launch names, or what the model was made for (twice the
    requests of the job, where that is not known)."""
    request = job.ask.prompt + job.ask.output
    return float(max(job.served_length or job.model.context or 2 * request, request))


def _largest_context(job: ServingJob, config: Config, memory: Capacity) -> int:
    """Tokens of the longest request that a replica takes, no more than its launch is for; of pools, that both take."""
    tokens = min(longest_request(job.model, memory), job.served_length or UNKNOWN_CONTEXT)
    if isinstance(config, PooledConfig):
        prefill_memory = capacity(deployed(job, config.pools.prefill))
        tokens = min(tokens, longest_request(job.model, prefill_memory))
    return int(tokens)


def longest_request(model: Transformer, memory: Capacity) -> int:
    """Tokens of the longest request that a cache holds, no more than the model was made for."""
    return memory.largest_request(float(model.context or UNKNOWN_CONTEXT))
