"""What is to be compiled: one program of a plan for one slice, in words that travel as JSON and name a cache entry.

What a verification says: every planned number beside the compiler's, with a verdict and, where they differ, why.
"""

import functools
import hashlib
import tomllib
from importlib import resources
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


class VerifyLine(msgspec.Struct, frozen=True):
    """One number, planned and compiled. `verdict` is `agrees`, `explained` (they differ for the reason in `why`) or
    `differs`."""

    name: str
    unit: str
    planned: float
    compiled: float
    tolerance: float
    verdict: str
    why: str = ""
    ratio: float | None = None
    """Compiled over planned; found from the two."""

    def __post_init__(self) -> None:
        if self.ratio is None and self.planned:
            msgspec.structs.force_setattr(self, "ratio", self.compiled / self.planned)


class AxisLine(msgspec.Struct, frozen=True):
    """The bytes that each chip sends over one set of mesh axes, by kind of collective."""

    axes: tuple[str, ...]
    line: VerifyLine
    kinds: dict[str, tuple[float, float]]
    """For each kind of collective: bytes planned and compiled."""


class Unmatched(msgspec.Struct, frozen=True):
    """A collective that only one side has, with what is known of it."""

    kind: str
    axes: tuple[str, ...]
    total_bytes: float
    times: int
    what: str
    op_name: str = ""
    source: str = ""
    why: str = ""


class OverlapLine(msgspec.Struct, frozen=True):
    """A collective's place in the schedule (`full` mode): whether the planner would hide it, and whether the compiler
    does."""

    kind: str
    axes: tuple[str, ...]
    what: str
    total_bytes: float
    planned: str
    compiled: str
    agrees: bool


class StackDifference(msgspec.Struct, frozen=True):
    """A line that another stack has otherwise than our own program: FLOPs or bytes of a chip in a step, before and
    after one of the stack's switches is set, and what that switch means. Differences of several switches add up."""

    switch: str
    why: str
    quantity: str
    section: str
    phase: str
    what: str
    ours: float
    theirs: float


class VerifyReport(msgspec.Struct, frozen=True):
    """A whole verification. `compiled` is False where the compiler gave no program: `trouble` says why, and `largest`
    names the buffers it could not place."""

    request: Request
    versions: dict[str, str]
    seconds: float
    resident_bytes: float
    compiled: bool
    verdict: str
    arguments: VerifyLine | None = None
    peak: VerifyLine | None = None
    memory: dict[str, float] = {}
    """The planned peak by part, in bytes."""
    limit_bytes: float = 0.0
    fits_planned: bool = True
    fits_compiled: bool = True
    flops: VerifyLine | None = None
    axes: tuple[AxisLine, ...] = ()
    only_planned: tuple[Unmatched, ...] = ()
    only_compiled: tuple[Unmatched, ...] = ()
    overlap: tuple[OverlapLine, ...] = ()
    padding_bytes: float = 0.0
    cycles_s: float | None = None
    """The compiler's estimated cycles as seconds, without anything that travels (TPU, `full` mode)."""
    slowest: tuple[tuple[str, float], ...] = ()
    algorithms: dict[str, int] = {}
    unknown: tuple[str, ...] = ()
    trouble: str = ""
    largest: tuple[tuple[str, float, str], ...] = ()
    advice: str = ""
    """Which plan would fit, where this one does not."""
    stack: str = "dragonscale"
    """The stack that the plan was made for."""
    stack_differences: tuple[StackDifference, ...] = ()
    """Where that stack's ledger differs from the planned side, which is our own program's."""


@functools.cache
def explanations(table: str) -> dict[str, str]:
    """A table of `explanations.toml`."""
    text = (resources.files("dragonscale.evidence.verify") / "explanations.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)[table]
