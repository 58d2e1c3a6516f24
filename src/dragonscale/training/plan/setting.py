"""What the plans of one batch have in common, and the line of the ledger that a kernel or a move is in one
microbatch."""

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
from dragonscale.training.plan.local_section import LocalSection
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import Alive, Stack
from dragonscale.training.plan.timers import Timer
from dragonscale.training.plan.tuning import Tuning

Undivided = frozenset[tuple[str, tuple[str, ...]]]
"""Dims, each with mesh axes that do not divide it and therefore leave it whole."""

# The matmuls of these parts run in the plan's dtype; the head, the router and an indexer stay in bf16.
NARROW_PARTS = ("attention", "mlp", "experts", "shared")

# Kernels that one line stands for, where they are several: choosing experts, counting and sorting tokens.
LAUNCHES = {"route": 12.0, "dispatch": 8.0, "combine": 8.0, "attend": 2.0}


@dataclass(frozen=True)
class PassLine(LedgerLine):
    """A kernel or a move in one microbatch. `ops` are the indices of the ops it computes, with their FLOPs; `launches`
    counts kernels, `experts` those of a grouped matmul; `covers` is how many seconds keys and values may travel over
    `context` under it. `kept`: a flash kernel whose softmax statistics are saved for its gradient, so that only the
    policy `block` runs it again."""

    ops: tuple[tuple[int, Number], ...] = ()
    launches: Number = 0.0
    experts: Number = 0.0
    covers: Number = 0.0
    kept: bool = False


@dataclass(frozen=True)
class Setting:
    """What every plan of a batch shares: the model, the machine, the work, and those settings of a plan that are words
    (`plan`; its degrees are elsewhere). `folded`: experts are spread over `tensor`; `undivided`: by section the dims
    that the mesh does not divide. Without a `timer` only bounds are computed; with `detail` FLOPs, bytes and bounds
    are, too. `documents` is the mean length in tokens of the documents that a sequence is packed with; `alive` has the
    letters for XLA's live copies where formulas are wanted."""

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
        """How the plan lays out the tensors of a section."""
        plan = self.plan
        # Settings that do not concern this section take their default, so that more sections share cached rules.
        folded, over_context = True, False
        if "e" in section.dims:
            folded, over_context = self.folded, plan.fold == "context"
        attends = any(op.function in ("attend", "score") for op in section.ops)
        context_by = plan.context_by if attends else "gather"
        settings = (plan.sequence, plan.zero, folded, context_by, over_context)
        return _rules(settings, self.stack.state.sums_everywhere, self.undivided.get(section.name, frozenset()))

    def reading(self, section: Section) -> Reading:
        """A section's kernels and moves under its rules."""
        return read_training(section, self.rules(section))

    def local(self, section: Section, microbatch: Number, mesh: Mesh) -> LocalSection:
        """A section as one chip of a mesh has it."""
        sizes = pass_sizes(self, section, microbatch, mesh)
        return LocalSection(section, self.rules(section), sizes, mesh, self.stack)

    def with_remat(self, remat: str) -> "Setting":
        """The same with another remat policy."""
        return replace(self, plan=replace(self.plan, remat=remat))

    def peak(self, part: str) -> Number:
        """The datasheet FLOP/s for the matmuls of a part."""
        return self.slice.chip.peak(self.plan.dtype if part in NARROW_PARTS else "bf16")

    @property
    def ends(self) -> tuple[Section, ...]:
        """The sections of the last stage besides its layers: the head, and modules that predict further tokens."""
        head = self.program.sections[-1]
        if not self.stack.further_tokens:
            return (head,)
        return (head, *(section for section in self.program.extras if section.name.startswith("mtp")))

    @property
    def towers(self) -> tuple[Section, ...]:
        """The sections of what a model sees or hears with, whose weights are frozen."""
        return tuple(section for section in self.program.extras if not section.name.startswith("mtp"))

    @property
    def sections(self) -> tuple[Section, ...]:
        """Every section once."""
        return (*self.program.sections[:-1], *self.ends)


@dataclass(frozen=True)
class PlacedSection:
    """A section under a setting: its kernels and moves, its sizes in one microbatch, and the wires of its mesh."""

    setting: Setting
    reading: Reading
    sizes: dict[str, Number]
    wires: Wires

    @property
    def mesh(self) -> Mesh:
        """The mesh that the wires belong to."""
        return self.wires.mesh

    @property
    def local(self) -> LocalSection:
        """The section as one chip has it."""
        return LocalSection(self.reading.section, self.reading.rules, self.sizes, self.mesh, self.setting.stack)


@functools.lru_cache(maxsize=256)
def _rules(settings: tuple[Any, ...], sums_everywhere: bool, undivided: Undivided) -> Rules:
    return replace(training_rules(*settings), sums_everywhere=sums_everywhere, undivided=undivided)


def pass_sizes(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> dict[str, Number]:
    """The sizes of a section's dims in one microbatch over the whole mesh. KV heads fewer than the tensor shards are
    copied until each chip has one."""
    tokens = setting.sequence
    if isinstance(tokens, int):
        tokens = float(tokens)  # products of large integers would overflow in arrays
    sequences = microbatch * mesh.size("data", "fsdp", "expert")
    sizes: dict[str, Number] = section.dims | {"b": sequences, "t": tokens, "s": tokens}
    if "k" in sizes:
        undivided = ("k", ("tensor",)) in setting.undivided.get(section.name, ())
        sizes["k"] = 1 if undivided else maximum(sizes["k"], mesh.size("tensor"))
    if section.compress is not None:
        sizes["m"] = sizes["s"] / section.compress
    return sizes


def attending_sizes(sizes: dict[str, Number], rules: Rules, mesh: Mesh) -> dict[str, Number]:
    """Sizes while attention runs: under Ulysses heads are split over more chips, so KV heads may have to be copied."""
    if not rules.trades or "k" not in sizes:
        return sizes
    return sizes | {"k": maximum(sizes["k"], mesh.size(*rules.attend_heads))}
