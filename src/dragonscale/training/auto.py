"""`--stack auto`: the stack that people run on a chip for that kind of model, as the table `auto.toml` has it.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> auto_stack(parse_slice("v5p:4x4x4"), load_model("llama3-70b"))
'maxtext'
>>> (
...     auto_stack(parse_slice("h100:8"), load_model("llama3-8b")),
...     auto_stack(parse_slice("h100:2048"), load_model("llama3-405b")),
... )
('torchtitan', 'megatron-core')
"""

import functools
import math

import msgspec

from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.plan.settings import shipped_table
from dragonscale.training.legality import UsualChoice

AUTO = "auto"


class AutoChoice(UsualChoice, frozen=True, kw_only=True):
    """A stack, and the jobs that it is the usual one for."""

    stack: str
    experts: bool | None = None
    parameters: float = float("inf")
    chips: float = float("inf")
    dtypes: tuple[str, ...] = ()

    @property
    def sized(self) -> bool:
        """Whether it is the usual one up to some size alone."""
        return min(self.parameters, self.chips) < float("inf")


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


def usual_choices(piece: Slice, model: Transformer, dtype: str = "bf16") -> tuple[AutoChoice, ...]:
    """What people run there, a row for each stack: the usual one first, then others, usual for jobs of other sizes.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.models import load_model
    >>> [one.stack for one in usual_choices(parse_slice("h100:8"), load_model("llama3-8b"))]
    ['torchtitan', 'megatron-core']
    """
    chip, parameters = piece.chip, count_parameters(model).total
    experts = any("e" in section.dims for section in model.program().sections)
    found: dict[str, AutoChoice] = {}
    others: dict[str, AutoChoice] = {}
    for one in auto_choices():
        if not one.suits(chip) or one.experts not in (None, experts) or (one.dtypes and dtype not in one.dtypes):
            continue
        usual = not found and parameters <= one.parameters and piece.chips <= one.chips
        (found if usual else others).setdefault(one.stack, one)
        if not one.sized:
            break
    return (*found.values(), *(one for name, one in others.items() if name not in found))


def auto_choice(piece: Slice, model: Transformer, dtype: str = "bf16") -> AutoChoice:
    """The usual one, with the reason."""
    return usual_choices(piece, model, dtype)[0]


def auto_stack(piece: Slice, model: Transformer, dtype: str = "bf16") -> str:
    """The name of the stack that people run there."""
    return auto_choice(piece, model, dtype).stack
