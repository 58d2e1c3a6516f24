"""Which prompts an iteration prefills: the admission policies of the engines.

Prompts in progress come first, then the queue in order; the first that does not fit ends the search, so nobody is
overtaken. What fits is bounded by places in the batch, by the iteration's token budget and by pages.
"""

from dragonscale.serving.engine.chunk_shapes import PROMPTS, chunk_tokens
from dragonscale.simulation.replica_state import ReplicaState
from dragonscale.simulation.request import Sequence

Chunk = tuple[Sequence, int]
"""A sequence, and the tokens of its prompt that the next iteration prefills."""


def _tokens_of(sequence: Sequence) -> int:
    """Tokens that an admission takes pages for if it reserves them for the whole request."""
    return sequence.request.input_tokens + sequence.request.output_tokens - 1


def _fits(replica: ReplicaState, sequence: Sequence, need: int, cached_blocks: int) -> bool:
    """Whether there are the pages that an admission takes, beside the `need` of the next decode step.

    A sequence that decodes at once also needs a page for its next token.
    """
    pages = replica.pages
    tokens = _tokens_of(sequence) if replica.whole else sequence.context + sequence.ready
    free_pages = pages.room - need
    if replica.batch.members or replica.prefilling:
        free_pages -= replica.watermark_pages
        if replica.scheduler.page_each:
            free_pages -= len(replica.batch.members) + len(replica.prefilling)
    if cached_blocks:
        return pages.price(sequence, tokens, cached_blocks) <= free_pages
    return -(-tokens // pages.page) <= free_pages


def can_admit(replica: ReplicaState, sequence: Sequence) -> bool:
    """Whether a request that arrives now, as the first in the queue, would be admitted to the next iteration."""
    scheduler, decodes = replica.scheduler, len(replica.batch.members)
    if replica.static or decodes + len(replica.prefilling) >= scheduler.sequences:
        return False
    if replica.sizes:
        if len(replica.prefilling) >= PROMPTS and not sequence.ready:
            return False
    elif replica.beside and scheduler.tokens <= decodes * replica.queries and not sequence.ready:
        return False
    if replica.extra and not replica.pages.adapters.fits(sequence.request.adapter):
        return False
    cached_blocks = 0
    if replica.sharing and not sequence.ready:
        cached_blocks, _ = replica.pages.hits(sequence.request)
    return _fits(replica, sequence, 0, cached_blocks)


def admit(replica: ReplicaState, now: float, need: int, preempted: bool) -> list[Chunk]:
    """The chunks of the next iteration; whoever is admitted gets its pages. After a preemption nobody is admitted."""
    if replica.static:
        return _collect(replica, now)
    scheduler, members, prefilling = replica.scheduler, replica.batch.members, replica.prefilling
    budget = scheduler.tokens
    if replica.beside and not replica.sizes:
        budget -= len(members) * replica.queries  # decoding sequences come first
    cut = scheduler.kind == "chunked"
    largest = budget // scheduler.ranks or 1  # chunk: a prompt has the budget of one rank
    chunks: list[Chunk] = []
    for sequence in prefilling:
        if budget <= 0:
            break
        tokens = min(sequence.todo, budget, largest) if cut else sequence.todo
        chunks.append((sequence, tokens))
        budget -= tokens
    waiting, iterations = replica.waiting, replica.iterations
    places, extra, sharing = scheduler.sequences - len(members), replica.extra, replica.sharing
    passed: list[Sequence] = []
    # Asynchronous scheduling: what was known a step ago is scheduled already. Later arrivals are admitted only if that
    # is nothing.
    scheduled = bool(members or prefilling or (waiting and waiting[0].seen <= iterations))
    while waiting and not preempted and len(prefilling) < places:
        sequence = waiting[0]
        if scheduled and sequence.seen > iterations:
            break
        if extra and not replica.pages.adapters.fits(sequence.request.adapter):
            replica.count_queue(now)
            passed.append(waiting.popleft())  # others overtake those whose adapter has no slot, as in vLLM
            continue
        if sequence.ready:
            if not _enter(replica, sequence, now, need, 0, 0):
                break
            replica.batch.join(sequence)
            places -= 1
            need = replica.batch.next_pages()
            continue
        if budget <= 0:
            break
        cached_blocks, reusable_blocks = replica.pages.hits(sequence.request) if sharing else (0, 0)
        todo = _todo(replica, sequence, reusable_blocks) if reusable_blocks else sequence.context
        # an engine that does not cut prompts runs one beyond the budget alone
        if not cut and todo > budget and chunks:
            break
        if not _enter(replica, sequence, now, need, cached_blocks, reusable_blocks, todo):
            break
        tokens = min(todo, budget, largest) if cut else todo
        chunks.append((sequence, tokens))
        budget -= tokens
        if replica.sizes and len(chunks) == PROMPTS:
            break
    if passed:
        waiting.extendleft(reversed(passed))
    if replica.sizes and chunks:
        return _as_compiled(replica, chunks)
    return chunks


def _as_compiled(replica: ReplicaState, chunks: list[Chunk]) -> list[Chunk]:
    """The part of these chunks that an iteration of a compiled size computes; the rest stays in progress."""
    todo = sum(sequence.todo for sequence, _ in chunks)
    rows = replica.scheduler.sequences * replica.queries if replica.batch.members else 0
    left = chunk_tokens(replica.sizes, rows, todo)
    compiled: list[Chunk] = []
    for sequence, _ in chunks:
        if not left:
            break
        compiled.append((sequence, min(sequence.todo, left)))
        left -= compiled[-1][1]
    return compiled


def _todo(replica: ReplicaState, sequence: Sequence, blocks: int) -> int:
    """Tokens left to prefill with so many leading blocks cached; at least one, which yields the next token."""
    cached = 0
    if blocks:
        cached = replica.pages.until(sequence.request, blocks) * replica.scheduler.page_tokens
    return max(sequence.context - cached, 1)


def _enter(
    replica: ReplicaState,
    sequence: Sequence,
    now: float,
    need: int,
    cached_blocks: int,
    reusable_blocks: int,
    todo: int = 0,
) -> bool:
    """Admit the first of the queue if its pages are available: take them, and put it among the prompts in progress."""
    pages = replica.pages
    if not _fits(replica, sequence, need, cached_blocks):
        return False
    replica.count_queue(now)
    replica.waiting.popleft()
    seconds = pages.admit(
        sequence, _tokens_of(sequence) if replica.whole else sequence.context, cached_blocks, reusable_blocks
    )
    replica.orders = sequence.order = replica.orders + 1
    if replica.extra:
        _bring(replica, sequence)
    if sequence.ready:
        sequence.ready = False
        return True
    replica.unprefilled += todo - sequence.context
    sequence.todo = todo
    replica.prefilling.append(sequence)
    tally, page = replica.tally, pages.page
    if sequence.start_s < 0:
        sequence.start_s = now
    if pages.sharing:
        reused = min(pages.until(sequence.request, reusable_blocks) * page, sequence.context - 1)
        sequence.cached = max(sequence.cached, reused)
        tally.cached_tokens += reused
        if reusable_blocks > cached_blocks:
            loaded = (
                pages.until(sequence.request, reusable_blocks) - pages.until(sequence.request, cached_blocks)
            ) * page
            replica.loading += seconds
            tally.host_tokens += loaded
    tally.prompt_tokens += sequence.context
    return True


def _bring(replica: ReplicaState, sequence: Sequence) -> None:
    """Load a request's adapter, and encode its images (once)."""
    request, pool = sequence.request, replica.pool
    if replica.pages.adapters.hold(request.adapter):
        replica.tally.swaps += 1
        replica.loading += pool.adapter_s
    if request.images and sequence.start_s < 0 and not sequence.ready:
        replica.encoding += request.images * pool.image_s


def _collect(replica: ReplicaState, now: float) -> list[Chunk]:
    """A static batch: nobody is admitted before the last member of the one before has left."""
    scheduler, waiting = replica.scheduler, replica.waiting
    if replica.batch.members or not waiting:
        return []
    if len(waiting) < scheduler.sequences and scheduler.patience_s > 0:
        ready_s = waiting[0].request.arrival_s + scheduler.patience_s
        if now < ready_s:
            replica.wake(ready_s)
            return []
    chunks: list[Chunk] = []
    while waiting and len(chunks) < scheduler.sequences:
        sequence = waiting[0]
        if not replica.pages.adapters.fits(sequence.request.adapter):
            break
        cached_blocks, reusable_blocks = replica.pages.hits(sequence.request)
        todo = _todo(replica, sequence, reusable_blocks)
        if not _enter(replica, sequence, now, 0, cached_blocks, reusable_blocks, todo):
            break
        chunks.append((sequence, todo))
    return chunks
