"""What is asked of an engine and what it says: the messages between the server and its workers.

A request has its prompt as token ids; text is the server's business. A worker answers with `Emitted` messages: the new
tokens of a request since the last one and, with the last, why it ended.
"""

from typing import Any

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 leave all tokens in. The
    penalties are OpenAI's (presence, frequency: over what was generated) and Hugging Face's (repetition: over the
    prompt too). `logprobs` is how many of the likeliest tokens to tell beside the chosen one (None: nothing is told).
    `grammar` constrains the output: its kind (`json_schema`, `json_object`, `regex`, `choice`, `lark`) and its text."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    seed: int | None = None
    logprobs: int | None = None
    bias: dict[int, float] = {}
    grammar: tuple[str, str] | None = None


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to generate (`n` choices are `n` requests). `length` is the most tokens to generate, `least` the
    fewest before an end-of-sequence token counts; `ends` are token ids that end it (the model's own among them unless
    they are to be ignored). `deadline` is in seconds of the time of day, 0 for none. An `embed` request ends after its
    prompt with the last hidden state. `adapter` is the number of the LoRA that answers, from 1 (0: the model
    itself). Slots of the engine go in turn to each `client` that waits for one."""

    id: str
    prompt: list[int]
    sampling: Sampling = Sampling()
    length: int = 16
    least: int = 0
    ends: list[int] = []
    arrived: float = 0.0
    deadline: float = 0.0
    embed: bool = False
    prompt_logprobs: int | None = None
    adapter: int = 0
    client: str = ""


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """What a prefill engine leaves to a decode engine: the `tokens` generated so far and the pages with the keys of the
    first `computed` tokens, as `ModelRunner.read_pages` gives them."""

    tokens: list[int]
    computed: int
    contents: Any = None


class TokenLogprob(msgspec.Struct, frozen=True):
    """A chosen token's log probability, and the likeliest tokens with theirs."""

    token: int
    logprob: float
    top: list[tuple[int, float]] = []


class Emitted(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of a request. `finish` is empty while it goes on, then `stop` (an end token, which is the last of
    `tokens`), `length`, `cancelled`, `deadline`, `handover` (a prefill engine is done; what it leaves is in `handed`),
    `refused` (it can never be served) or `error`, with `why`. `cached` tokens of the prompt came from the prefix cache;
    the request `waited` so many seconds for its place."""

    id: str
    tokens: list[int] = []
    logprobs: list[TokenLogprob] = []
    finish: str = ""
    why: str = ""
    cached: int = 0
    waited: float = 0.0
    embedding: list[float] = []
    prompt_logprobs: list[TokenLogprob | None] = []
    handed: HandedOver | None = None
