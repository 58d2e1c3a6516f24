"""A request as traffic states it, and the same request as a sequence in an engine.

A `SimulatedRequest` never changes. Its prompt may begin like other prompts: `blocks` names the leading blocks of
`block_tokens` tokens each, one name per block *and everything before it*, as hash chains do (and as the Mooncake trace
writes them), so two prompts share exactly the leading blocks whose names agree.

A `Sequence` is what an engine keeps of it. Nothing of it is touched while it decodes: the step at which it joined, the
tokens it held then and the steps it will take say at any later step how far it is.
"""

from typing import NamedTuple


class SimulatedRequest(NamedTuple):
    """One call of the service. Times are seconds since the start of the run; `kind` is the number of its class of
    traffic, and of those that wait in a replica the one of the smallest `priority` goes first. Requests of one
    `session` come one after another; -1 is none."""

    number: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    kind: int = 0
    priority: int = 0
    session: int = -1


class Sequence:
    """A request on its way. `context` is what must be in the cache before the next token: the prompt, and after a loss
    of the cache also the tokens produced so far. `todo` of it is still to be prefilled."""

    produced: int = 0
    todo: int = 0
    ready: bool = False  # the context's cache arrives from elsewhere: nothing to prefill
    cached: int = 0  # tokens of the prompt found in the cache when first admitted
    private: int = 0  # pages of its own, as of joining
    held: int = 0  # leading blocks it shares
    order: int = -1  # admission's number, and its key while it is in the engine
    joined: int = 0  # step at which it began to decode
    base: int = 0  # tokens in the cache then
    left: int = 0  # tokens still to produce then
    steps: int = 0  # steps that takes
    growth: float = 1.0  # tokens a step: left / steps
    start_s: float = -1.0  # first scheduled
    first_s: float = -1.0  # first token
    last_s: float = -1.0  # latest token before it left a batch
    preemptions: int = 0
    retries: int = 0
    seen: float = 0.0  # number of the first iteration that may take it

    def __init__(self, request: SimulatedRequest) -> None:
        self.request, self.context = request, request.input_tokens

    @property
    def unprefilled(self) -> int:
        """Tokens that a replica has to prefill of it, as far as one that queues it knows."""
        return 0 if self.ready else self.context

    def grown(self, step: int) -> int:
        """Tokens produced since it joined, at this step."""
        return self.left * (step - self.joined) // self.steps if self.steps else 0

    def reset(self) -> None:
        """The cache is lost: everything known of it must be prefilled again."""
        self.context = self.request.input_tokens + self.produced
        self.ready = False
        self.held = self.private = 0
