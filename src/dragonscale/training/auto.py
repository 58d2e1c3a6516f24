"""`--stack auto`: the stacks that people run on a chip for that kind of model, as the table `auto.toml` has them.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> auto_choice(parse_slice("v5p:4x4x4"), load_model("llama3-70b")).stacks
('maxtext',)
>>> auto_choice(parse_slice("h100:8"), load_model("llama3-8b")).stacks
('torchtitan', 'megatron-core')
"""

import functools
import math

import msgspec

from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Slice
from dragonscale.plan.settings import shipped_table
from dragonscale.training.legality import UsualChoice

AUTO = "auto"


class AutoChoice(UsualChoice, frozen=True, kw_only=True):
    """Stacks, and the jobs that they are usual for."""

    stacks: tuple[str, ...]
    experts: bool | None = None
    tuned: bool = False
    """Whether it is for fine-tuning, where a method was named, alone."""
    otherwise: tuple[str, ...] = ()
    """Stacks that are less usual, for jobs that fit with none of these or that none of these takes."""


class ProductionRuns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Runs of `chips` and more that were slower than the `benchmarks` (chips) that `stacks` are settled on: the stack
    `as_run` has them."""

    stacks: tuple[str, ...]
    names: tuple[str, ...]
    benchmarks: int
    chips: int
    dtypes: tuple[str, ...]
    as_run: str
    runs: str
    source: str

    def share(self, chips: int) -> float:
        """How far a band reaches to them: not at all for a benchmark's chips, all the way for theirs, without a jump.

        >>> [round(production_runs()[0].share(chips), 2) for chips in (32, 64, 512, 1536, 16384)]
        [0.0, 0.0, 0.65, 1.0, 1.0]
        """
        doublings = math.log2(max(chips, 1) / self.benchmarks) / math.log2(self.chips / self.benchmarks)
        return min(max(doublings, 0.0), 1.0)


@functools.cache
def auto_choices() -> tuple[AutoChoice, ...]:
    """The table, first match first."""
    return msgspec.convert(shipped_table("training", "auto.toml")["choices"], tuple[AutoChoice, ...])


@functools.cache
def production_runs() -> tuple[ProductionRuns, ...]:
    """What is known of large runs."""
    return msgspec.convert(shipped_table("training", "auto.toml")["production"], tuple[ProductionRuns, ...])


def auto_choice(piece: Slice, model: Transformer, tuned: bool = False) -> AutoChoice:
    """What people run there, with the reason.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.models import load_model
    >>> auto_choice(parse_slice("h100:1"), load_model("llama3-8b"), tuned=True).stacks
    ('axolotl', 'hf')
    """
    experts = any("e" in section.dims for section in model.program().sections)
    suit = (one for one in auto_choices() if one.suits(piece.chip) and one.experts in (None, experts))
    return next(one for one in suit if tuned or not one.tuned)
