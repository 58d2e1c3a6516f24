"""What plans of one batch have in common, and a section's lines under it."""

import functools
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.models.program import Program, Section
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.placement import Wires
from dragonscale.plan.gradients import read_training
from dragonscale.plan.reader import Move, Reading
from dragonscale.plan.rules import Rules, training_rules
from dragonscale.training.lines import Costing, PassLine, section_lines
from dragonscale.training.plan import Plan
from dragonscale.training.stack import Stack
from dragonscale.training.timers import Timer
from dragonscale.training.travel import Network
from dragonscale.training.xla_memory import Alive

Undivided = frozenset[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class Setting:
    """What is the same for every plan of a batch: the model, the machine, the work, and the choices that are words
    (`plan`). `folded` spreads experts over `tensor`; `undivided` are the dims of each section that the mesh does not
    divide; `documents` is the mean length of those that a sequence is packed with; `alive` are letters for the copies
    that XLA keeps, where formulas are asked for."""

    program: Program
    slice: Slice
    batch: Number
    sequence: Number
    plan: Plan
    stack: Stack
    timer: Timer | None
    network: Network
    folded: bool = True
    undivided: dict[str, Undivided] = field(default_factory=dict)
    detail: bool = True
    documents: Number | None = None
    alive: Alive | None = None

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

    @property
    def costing(self) -> Costing:
        """What lines are costed with."""
        return Costing(
            self.plan, self.stack, self.slice.chip, self.timer, self.network, self.detail, documents=self.documents
        )

    @property
    def ends(self) -> tuple[Section, ...]:
        """What the last stage has beside its layers: the head, and modules that predict further tokens."""
        more = [section for section in self.program.extras if section.name.startswith("mtp")]
        return (self.program.sections[-1], *(more if self.stack.further_tokens else ()))

    @property
    def sections(self) -> tuple[Section, ...]:
        """Every section once."""
        return (*self.program.sections[:-1], *self.ends)


@functools.lru_cache(maxsize=256)
def _rules(words: tuple[Any, ...], sums_everywhere: bool, undivided: Undivided) -> Rules:
    return replace(training_rules(*words), sums_everywhere=sums_everywhere, undivided=undivided)


def pass_sizes(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> dict[str, Number]:
    """Dims with the microbatch. KV heads are shared where there are fewer than tensor shards: each
    chip works on one."""
    tokens = float(setting.sequence) if isinstance(setting.sequence, int) else setting.sequence
    sizes: dict[str, Number] = section.dims | {
        "b": microbatch * mesh.size("data", "fsdp", "expert"),
        "t": tokens,
        "s": tokens,
    }
    if "k" in sizes:
        whole = ("k", ("tensor",)) in setting.undivided.get(section.name, ())
        sizes["k"] = 1 if whole else maximum(sizes["k"], mesh.size("tensor"))
    if section.compress is not None:
        sizes["m"] = sizes["s"] / section.compress
    return sizes


ALL = ("kernels", "activations", "state")


def costed_section(
    setting: Setting, section: Section, microbatch: Number, wires: Wires, chosen: tuple[str, ...] = ALL
) -> list[PassLine]:
    """A section's lines in one microbatch, or those of kernels, of moves of activations, of moves of weights and
    gradients."""
    reading, sizes = setting.reading(section), pass_sizes(setting, section, microbatch, wires.mesh)
    later = [move for move in reading.moves if _stacked(move, setting)]
    moves = [move for move in reading.moves if _kind(move) in chosen and move not in later]
    few = replace(reading, kernels=reading.kernels if "kernels" in chosen else (), moves=tuple(moves))
    lines = section_lines(few, sizes, wires, setting.costing)
    if later and "state" in chosen:
        # Of KV heads that chips share, what is summed outside the pass has all of them.
        few = replace(reading, kernels=(), moves=tuple(later))
        costing = replace(setting.costing, statistics=False)
        lines += section_lines(few, sizes | {"k": section.dims.get("k", 1)}, wires, costing)
    return lines


def _kind(move: Move) -> str:
    return "activations" if move.what in ("activation", "expert") else "state"


def _stacked(move: Move, setting: Setting) -> bool:
    """Whether a move of all layers at once is made outside the scan over layers."""
    scattered = setting.plan.zero == 3 and move.step.kind == "reduce_scatter"
    outside = move.phase == "update" or (move.phase == "gradient" and not scattered)
    return outside and setting.stack.state.sums_everywhere


def offload_seconds(setting: Setting, section: Section, sizes: dict[str, Number], mesh: Mesh) -> Number:
    """What sending a block's input to the host takes, one way, should the plan ask for it."""
    if "block" not in section.name:
        return 0.0
    entry = setting.rules(section).activation(section.ops[0].inputs[0])
    return local_bytes(entry, sizes, mesh) / setting.slice.chip.host_link
