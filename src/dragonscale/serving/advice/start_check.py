"""What an engine checks when it starts: that its KV cache holds one request of the longest that it is launched for."""

from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.serving.advice.bills import longest_request
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.iteration.capacity import Capacity, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.state_blocks import StateBlocks, state_blocks
from dragonscale.serving.space.space import slices_of


@dataclass(frozen=True)
class StartCheck:
    """What the launch of a given plan comes to. `refusal` says why the engine does not start and `remedy` what to
    change, and `verdict` both in a few words; `text` that it starts, and `note` what it does not serve, where it starts
    all the same."""

    largest_context: int
    kv_cache_tokens: int
    refusal: str = ""
    remedy: str = ""
    note: str = ""
    text: str = ""
    verdict: str = ""


def start_check(job: ServingJob) -> StartCheck | None:
    """The check of another software's launch; None of a plan that names no longest request, or whose weights do not
    fit."""
    longest, plan = job.served_length, job.plan
    if longest is None or plan is None:
        return None
    chip, named_slice = job.targets[0]
    engine = job.engine_on(chip)
    deployment = Deployment(job.model, named_slice or slices_of(chip)[0], plan, engine)
    memory = capacity(deployment)
    if first_number(memory.cache) <= 0:
        return None
    largest, fitting = longest_request(job.model, memory), memory.largest_request(float(longest))
    blocks = blocks_of(deployment, memory)
    if blocks is not None:
        largest, fitting = min(largest, blocks.longest_request), min(fitting, blocks.longest_request)
    check = StartCheck(largest_context=largest, kv_cache_tokens=int(memory.printed_tokens(float(longest))))
    sequences = engine.scheduling.max_sequences
    if fitting >= longest and blocks is not None and sequences > blocks.count:
        return replace(
            check,
            refusal=_blocks_refusal(engine, blocks, sequences),
            remedy=_blocks_remedy(blocks),
            verdict=(
                f"{sequences:,} sequences at once are more than its {blocks.count:,} state blocks; take --max-num-seqs "
                f"{blocks.count} or fewer"
            ),
        )
    if fitting >= longest:
        needed = render(_request_bytes(memory, longest), "bytes")
        free = render(first_number(memory.cache), "bytes")
        text = f"yes: one request of {longest:,} tokens takes {needed} of the {free} of KV cache on a chip"
        return replace(check, text=text)
    if not engine.checks_length:  # it starts, and refuses longer requests when they come
        note = (
            f"The launch is for requests of up to {longest:,} tokens, and its KV cache holds no more than "
            f"{check.largest_context:,} tokens of one."
        )
        return replace(check, note=note)
    refusal = _refusal(job, engine, memory, longest)
    verdict = f"the KV cache holds {check.largest_context:,} tokens of a request"
    return replace(check, refusal=refusal, remedy=_remedy(engine, check.largest_context), verdict=verdict)


def blocks_of(deployment: Deployment, memory: Capacity) -> StateBlocks | None:
    """The blocks that recurrent states lie in, under engines that put them there."""
    if not deployment.engine.memory.state_blocks:
        return None
    return state_blocks(deployment, first_number(memory.cache))


def _request_bytes(memory: Capacity, tokens: int) -> float:
    """Bytes on a chip of one request of so many tokens on every data rank, in whole pages."""
    return first_number(memory.sequence(memory.in_pages(float(tokens)))) * first_number(memory.places)


def _blocks_refusal(engine: Engine, blocks: StateBlocks, sequences: int) -> str:
    """Why an engine does not start that may have more sequences than blocks for their recurrent states."""
    return (
        f"{engine.title} refuses to start: --max-num-seqs is {sequences:,}, and the KV cache has about "
        f"{blocks.count:,} blocks for the states of recurrent layers (Mamba cache blocks), one for each sequence."
    )


def _blocks_remedy(blocks: StateBlocks) -> str:
    if blocks.count < 1:
        return "No sequence fits: take more chips, chips with more memory, or narrower formats."
    return (
        f"Launch with --max-num-seqs {blocks.count} or fewer (the engine's message has the exact number), or leave it "
        "more memory."
    )


def _refusal(job: ServingJob, engine: Engine, memory: Capacity, longest: int) -> str:
    """Why an engine does not start, in its terms."""
    needed = _request_bytes(memory, longest)
    whose = f"{engine.length_flag} is {longest:,}"
    if not job.length_said:
        whose = f"without {engine.length_flag} a request may have the model's {longest:,} tokens"
    return (
        f"{engine.title} refuses to start: {whose}, and one such request takes {render(needed, 'bytes')} of KV cache "
        f"on a chip, where {render(first_number(memory.cache), 'bytes')} are left for it."
    )


def _remedy(engine: Engine, largest: int) -> str:
    """What to launch instead; `largest` is the longest request that fits, in tokens."""
    if largest < 1:
        return "No request fits: take more chips, chips with more memory, or narrower formats."
    return (
        f"The largest that works is {engine.length_flag} {largest}. More chips, a larger part of the memory or a "
        "narrower KV cache hold more."
    )
