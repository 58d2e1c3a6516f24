"""What plans of one batch have in common, and what a kernel or a move in one microbatch is."""

import functools
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.models.program import Program, Section
from dragonscale.physics.collectives.profile import NetworkProfile
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.gradients import read_training
from dragonscale.plan.ledger import LedgerLine
from dragonscale.plan.reader import Reading
from dragonscale.plan.rules import Rules, training_rules
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import Alive, Stack
from dragonscale.training.plan.timers import Timer
from dragonscale.training.plan.tuning import Tuning

Undivided = frozenset[tuple[str, tuple[str, ...]]]
NARROW_PARTS = ("attention", "mlp", "experts", "shared")
"""Parts whose matmuls run in the plan's dtype; the head, the router and an indexer stay in bf16."""
LAUNCHES = {"route": 12.0, "dispatch": 8.0, "combine": 8.0, "attend": 2.0}
"""Kernels that a line stands for, where it is more than one: choosing experts, counting and sorting tokens."""


@dataclass(frozen=True)
class PassLine(LedgerLine):
    """A line in one microbatch. `ops` are the places of the ops it computes, with their FLOPs; `launches` counts
    kernels, `experts` those of a grouped matmul; `covers` is how long keys and values may travel over `context` under
    it. `kept`: a flash kernel whose sums are kept for its gradient, so that only `block` runs it again."""

    ops: tuple[tuple[int, Number], ...] = ()
    launches: Number = 0.0
    experts: Number = 0.0
    covers: Number = 0.0
    kept: bool = False


@dataclass(frozen=True)
class Setting:
    """What is the same for every plan of a batch: the model, the machine, the work, and the choices that are words
    (`plan`). `folded` spreads experts over `tensor`; `undivided` are the dims of each section that the mesh does not
    divide. Without a `timer` nothing is expected; `detail` asks for FLOPs, bytes and bounds too. `documents` is the
    mean length of those that a sequence is packed with; `alive` are letters for the copies that XLA keeps, where
    formulas are asked for."""

    program: Program
    slice: Slice
    batch: Number
    sequence: Number
    plan: Plan
    stack: Stack
    timer: Timer | None
    network: NetworkProfile | None
    folded: bool = True
    undivided: dict[str, Undivided] = field(default_factory=dict)
    detail: bool = True
    documents: Number | None = None
    alive: Alive | None = None
    tuning: Tuning = Tuning()

    def rules(self, section: Section) -> Rules:
        """The layouts that the plan asks for."""
        plan = self.plan
        # Words that say nothing about this section are left out, so that fewer layouts are worked out.
        experts = (self.folded, plan.fold == "context") if "e" in section.dims else (True, False)
        attends = any(op.function in ("attend", "score") for op in section.ops)
        words = (plan.sequence, plan.zero, experts[0], plan.context_by if attends else "gather", experts[1])
        return _rules(words, self.stack.state.sums_everywhere, self.undivided.get(section.name, frozenset()))

    def reading(self, section: Section) -> Reading:
        """A section under the rules."""
        return read_training(section, self.rules(section))

    def under(self, remat: str) -> "Setting":
        """The same with another remat policy."""
        return replace(self, plan=replace(self.plan, remat=remat))

    def peak(self, part: str) -> Number:
        """FLOP/s of a part's matmuls at best."""
        return self.slice.chip.peak(self.plan.dtype if part in NARROW_PARTS else "bf16")

    @property
    def ends(self) -> tuple[Section, ...]:
        """What the last stage has beside its layers: the head, and modules that predict further tokens."""
        more = [section for section in self.program.extras if section.name.startswith("mtp")]
        return (self.program.sections[-1], *(more if self.stack.further_tokens else ()))

    @property
    def sections(self) -> tuple[Section, ...]:
        """Every section once."""
        return (*self.program.sections[:-1], *self.ends)


@dataclass(frozen=True)
class PlacedSection:
    """One section under a setting: how it is read, its sizes in one microbatch, and the wires of its mesh."""

    setting: Setting
    reading: Reading
    sizes: dict[str, Number]
    wires: Wires

    @property
    def mesh(self) -> Mesh:
        """The mesh that the wires are of."""
        return self.wires.mesh


@functools.lru_cache(maxsize=256)
def _rules(words: tuple[Any, ...], sums_everywhere: bool, undivided: Undivided) -> Rules:
    return replace(training_rules(*words), sums_everywhere=sums_everywhere, undivided=undivided)


def pass_sizes(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> dict[str, Number]:
    """Dims with the microbatch. KV heads are shared where there are fewer than tensor shards: each
    chip works on one."""
    tokens = float(setting.sequence) if isinstance(setting.sequence, int) else setting.sequence
    sequences = microbatch * mesh.size("data", "fsdp", "expert")
    sizes: dict[str, Number] = section.dims | {"b": sequences, "t": tokens, "s": tokens}
    if "k" in sizes:
        whole = ("k", ("tensor",)) in setting.undivided.get(section.name, ())
        sizes["k"] = 1 if whole else maximum(sizes["k"], mesh.size("tensor"))
    if section.compress is not None:
        sizes["m"] = sizes["s"] / section.compress
    return sizes


def attending_sizes(sizes: dict[str, Number], rules: Rules, mesh: Mesh) -> dict[str, Number]:
    """Dims while attention runs: KV heads are copied where heads are dealt to more chips than there are of them."""
    if not rules.trades or "k" not in sizes:
        return sizes
    return sizes | {"k": maximum(sizes["k"], mesh.size(*rules.attend_heads))}
