"""Engines: in which order an iteration takes prompts and decoding sequences.

All engines but `static` are one scheduler with two switches. *Chunked*: may a prompt be cut to fill an iteration's
token budget, or is it prefilled whole? *Mixed*: do decoding sequences get their token in the same iteration as prompts,
or do they wait?

    continuous           whole prompts first, decoding waits (vLLM before its V1, TGI)
    continuous, mixed    whole prompts beside decoding (TensorRT-LLM's in-flight batching)
    chunked              decoding first, prompts fill the rest of the budget (vLLM V1; SGLang with mixed chunks)
    chunked, not mixed   prompts in chunks before any decoding (SGLang's default)

`static` collects a batch, prefills it together and decodes until its longest member ends; ended members keep their
places, as padding. A prompt that is longer than the budget of an engine that does not cut prompts runs alone.

>>> Scheduler("chunked").beside, Scheduler("continuous").beside
(True, False)
"""

from dataclasses import dataclass

from dragonscale.errors import InputError, unknown
from dragonscale.serving.speculation import Acceptance, check_acceptance

KINDS = ("static", "continuous", "chunked")
RESERVES = ("prompt", "whole")


@dataclass(frozen=True)
class Scheduler:
    """How one replica schedules.

    `sequences` and `tokens` cap an iteration of all `ranks` together; a prompt lies on one of them, so that no chunk is
    larger than a rank's part of what decoding sequences leave. Pages are taken for the prompt at admission and one by
    one afterwards, or (`reserve="whole"`) for prompt and output at once, which never preempts. `watermark` is the share
    of pages that an admission must leave free (vLLM's block manager: 0.01). `draft` tokens are proposed to every
    sequence in each step and each is accepted with probability `acceptance`, given those before it (by position where
    it is several). While an iteration runs, `ahead` more are settled already (asynchronous scheduling: 1), so a request
    that comes meanwhile waits for them too; and new requests are looked for every `poll` iterations only. An idle
    engine takes them at once. A static batch starts when it is full or its oldest member has waited `patience_s`."""

    kind: str = "chunked"
    sequences: int = 256
    tokens: int = 8192
    ranks: int = 1
    mixed: bool | None = None
    reserve: str = "prompt"
    watermark: float = 0.01
    page_tokens: int = 16
    draft: int = 0
    acceptance: Acceptance = 0.0
    patience_s: float = 0.0
    ahead: int = 0
    poll: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("engine", self.kind, KINDS)
        if self.reserve not in RESERVES:
            raise unknown("way to reserve pages called", self.reserve, RESERVES)
        for name in ("sequences", "tokens", "ranks", "page_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"An engine's {name} is {getattr(self, name)}; it must be at least 1.")
        check_acceptance(self.acceptance, "An engine's acceptance")
        for name, holds, wanted in (
            ("watermark", 0 <= self.watermark < 1, "a share of the pages, from 0 to below 1"),
            ("draft", self.draft >= 0, "0 (no speculation) or more tokens"),
            ("ahead", self.ahead >= 0, "0 or more iterations"),
            ("poll", self.poll >= 1, "1 or more iterations"),
            ("patience_s", self.patience_s >= 0, "0 or more seconds"),
        ):
            if not holds:
                raise InputError(f"An engine's {name} is {getattr(self, name)}; it is {wanted}.")

    @property
    def beside(self) -> bool:
        """Whether decoding goes on beside prompts."""
        return self.kind == "chunked" if self.mixed is None else self.mixed

    @property
    def queries(self) -> int:
        """Tokens a step puts through the model for each decoding sequence."""
        return self.draft + 1
