"""What is to be compiled: one program of a plan for one slice, in words that travel as JSON and name a cache entry."""

import hashlib
from typing import Literal

import msgspec

from dragonscale.evidence.xla.compiled import Compiled
from dragonscale.evidence.xla.memory import OutOfMemory

MODES = ("canonical", "full")


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A training step (`batch` sequences of `sequence` tokens), a prefill (`batch` prompts of `sequence` tokens) or a
    decode step (`batch` sequences with room for `sequence` tokens). `plan` is written out; `capacity` is the room of an
    expert over its even share; `canonical` asks for plain collectives and a quick compile, `full` for what would really
    run."""

    program: Literal["train", "prefill", "decode"]
    model: str
    slice: str
    plan: str
    batch: int
    sequence: int
    mode: Literal["canonical", "full"] = "canonical"
    capacity: float = 1.0
    options: dict[str, str] = {}

    @property
    def key(self) -> str:
        """A name for what this asks, the same for equal requests."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:20]


class Made(msgspec.Struct, frozen=True):
    """What a compiler answered: what was read from its module, or why there is none. `failed` is its
    own message; `seconds` and `resident_bytes` are of the process that compiled."""

    versions: dict[str, str]
    seconds: float
    resident_bytes: float
    compiled: Compiled | None = None
    out_of_memory: OutOfMemory | None = None
    failed: str = ""
