"""A request as traffic states it, and the same request as a sequence in an engine.

A `SimulatedRequest` never changes. Its prompt may begin like other prompts: `blocks` names the leading blocks of
`block_tokens` tokens each, one name per block *and everything before it*, as hash chains do (and as the Mooncake trace
writes them), so two prompts share exactly the leading blocks whose names agree.

A `Sequence` is what an engine keeps of it. Nothing of it is touched while it decodes: the step at which it joined, the
tokens it held then and the steps it will take say at any later step how far it is.
"""

from typing import NamedTuple


class SimulatedRequest(NamedTuple):
    """One call of the service.

    Times are seconds since the start of the run. `kind` is the index of its class of traffic; of requests that wait in
    a replica the one with the smallest `priority` goes first. Requests of one `session` come one after another; -1 is
    none, as for LoRA adapters. `images` have to be encoded; their tokens are part of the prompt. The first `warm`
    blocks are in the cache of whichever replica gets it: its session existed before the run began.
    """

    number: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    kind: int = 0
    priority: int = 0
    session: int = -1
    adapter: int = -1
    images: int = 0
    warm: int = 0


class Sequence:
    """A request inside an engine.

    `context` is what must be in the cache before the next token: the prompt, and after a loss of the cache also the
    tokens produced so far. `todo` of it is still to be prefilled.
    """

    __slots__ = (
        *(
            "request",
            "context",
            "produced",
            "todo",
            "ready",
            "cached",
            "private",
            "held",
            "order",
            "start_s",
            "first_s",
        ),
        *("last_s", "preemptions", "retries", "seen"),
        *("joined", "base", "left", "steps", "growth"),
    )
    # as it joined a batch: the step, tokens in the cache, tokens still to produce, steps that takes, tokens a step
    joined: int
    base: int
    left: int
    steps: int
    growth: float

    def __init__(self, request: SimulatedRequest) -> None:
        self.request, self.context = request, request.input_tokens
        self.produced = self.todo = 0
        self.ready = False  # whether the context's cache arrives from elsewhere: nothing to prefill
        self.cached = 0  # tokens of the prompt found in the cache when first admitted
        self.private = 0  # pages of its own, as of joining
        self.held = 0  # leading blocks it shares
        self.order = -1  # admission's number, and its key while it is in the engine
        self.start_s = self.first_s = -1.0  # first scheduled; first token
        self.last_s = -1.0  # latest token before it left a batch
        self.preemptions = self.retries = 0
        self.seen = 0.0  # number of the first iteration that may take it

    @property
    def unprefilled(self) -> int:
        """Tokens that a replica has to prefill, as far as it knows while the request waits."""
        return 0 if self.ready else self.context

    def grown(self, step: int) -> int:
        """Tokens produced since it joined, at this step."""
        return self.left * (step - self.joined) // self.steps

    def reset(self) -> None:
        """The cache is lost: everything so far must be prefilled again."""
        self.context = self.request.input_tokens + self.produced
        self.ready = False
        self.held = self.private = 0
