"""`--stack auto`: the stacks that people run on a chip for that kind of model, from the table `auto.toml`.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> auto_choice(parse_slice("v5p:4x4x4"), load_model("llama3-70b")).stacks
('maxtext',)
>>> auto_choice(parse_slice("h100:8"), load_model("llama3-8b")).stacks
('torchtitan', 'megatron-lm')

Stacks whose trainer does not build the model are left out, and the reason says so.

>>> choice = auto_choice(parse_slice("h100:8"), load_model("olmo2-7b"))
>>> choice.stacks, choice.why
(('hf-fsdp',), 'torchtitan, Megatron-LM, Megatron-Bridge and GPT-NeoX do not build olmo2 models')
"""

import functools
import math
from collections.abc import Sequence

import msgspec

from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.plan.settings import shipped_table
from dragonscale.training.plan.builds import builders_elsewhere, trainer_of, unbuilt
from dragonscale.training.plan.legality import FAMILIES, UsualChoice, family

AUTO = "auto"
# Of a parameter: fp32 weight and gradient, and Adam's two moments.
REPLICA_BYTES = 16.0
OFFLOADING = ("deepspeed",)
"""The trainers that state is kept off the chip with, where the usual ones do not: ZeRO-Offload and ZeRO-Infinity are
DeepSpeed's."""


class AutoChoice(UsualChoice, frozen=True, kw_only=True):
    """Stacks, and the jobs that they are usual for."""

    stacks: tuple[str, ...]
    experts: bool | None = None
    tuned: bool = False
    """Whether it is for fine-tuning, where a method was named, alone."""
    otherwise: tuple[str, ...] = ()
    """Stacks that are less usual, for jobs that fit with none of these or that none of these takes."""
    others: tuple[str, ...] = ()
    """Stacks for models that the trainers of none of these build, the first to take before the second."""
    alone: tuple[str, ...] = ()
    """Stacks to take before those that are left for small models on one node, where the first of `stacks` does not
    build the model."""
    unbuilt: bool = False
    """Whether the trainers of all these stacks do not build the model either."""
    left_out: tuple[str, ...] = ()
    """Usual stacks that gave way because their trainers do not build the model."""


class ProductionRuns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Runs of `chips` and more that were slower than the benchmarks (of `benchmarks` chips) that `stacks` were fitted
    on. The stack `as_run` describes them."""

    stacks: tuple[str, ...]
    names: tuple[str, ...]
    benchmarks: int
    chips: int
    dtypes: tuple[str, ...]
    as_run: str
    runs: str
    source: str

    def share(self, chips: int) -> float:
        """How far an error band reaches towards them, from 0 at a benchmark's number of chips to 1 at theirs.

        >>> [round(production_runs()[0].share(chips), 2) for chips in (32, 64, 512, 1536, 16384)]
        [0.0, 0.0, 0.65, 1.0, 1.0]
        """
        # In doublings of the chips on the way from one to the other.
        doublings = math.log2(max(chips, 1) / self.benchmarks) / math.log2(self.chips / self.benchmarks)
        return min(max(doublings, 0.0), 1.0)


@functools.cache
def auto_choices() -> tuple[AutoChoice, ...]:
    """The table, first match first."""
    return msgspec.convert(shipped_table("training.plan", "auto.toml")["choices"], tuple[AutoChoice, ...])


@functools.cache
def production_runs() -> tuple[ProductionRuns, ...]:
    """What is known of large runs."""
    return msgspec.convert(shipped_table("training.plan", "auto.toml")["production"], tuple[ProductionRuns, ...])


def auto_choice(slice_: Slice, model: Transformer, tuned: bool = False) -> AutoChoice:
    """The stacks that people run on a slice and that build the model, with the reason.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.models import load_model
    >>> auto_choice(parse_slice("h100:1"), load_model("llama3-8b"), tuned=True).stacks
    ('axolotl', 'hf')
    """
    experts = any("e" in section.dims for section in model.program().sections)
    # The first row that suits the chip, the kind of model and the task.
    suitable = (row for row in auto_choices() if row.suits(slice_.chip) and row.experts in (None, experts))
    usual = next(row for row in suitable if tuned or not row.tuned)
    if usual.alone and not tuned and unbuilt(usual.stacks[0], model) and _small(slice_, model):
        others = tuple(stack for stack in usual.stacks if not unbuilt(stack, model))
        why = "small models on one node are mostly trained by loops like nanoGPT's"
        return msgspec.structs.replace(usual, stacks=usual.alone, otherwise=others, why=why)
    return _that_build(usual, model, family(slice_.chip))


def _small(slice_: Slice, model: Transformer) -> bool:
    """Whether each chip of one node holds a replica, with Adam, in half of its memory."""
    return slice_.hosts == 1 and REPLICA_BYTES * count_parameters(model).total <= slice_.chip.visible / 2


def _that_build(usual: AutoChoice, model: Transformer, chips: str) -> AutoChoice:
    """The usual choice reduced to stacks that build the model, and which of it had to give way; `chips` are a
    family."""
    built = tuple(stack for stack in usual.stacks if not unbuilt(stack, model))
    if built == usual.stacks:
        return usual
    left_out = tuple(stack for stack in (*usual.stacks, *usual.others) if unbuilt(stack, model))
    given_up = tuple(stack for stack in left_out if stack in usual.stacks)
    otherwise = tuple(stack for stack in usual.otherwise if not unbuilt(stack, model))
    if built:
        why = f"{usual.why}; {_do_not_build(given_up, model)}"
        return msgspec.structs.replace(usual, stacks=built, why=why, otherwise=otherwise, left_out=given_up)
    others = [stack for stack in (*usual.otherwise, *usual.others) if not unbuilt(stack, model)]
    if others:
        # The reason also names what comes before it in the list and does not build the model either.
        why = _do_not_build(left_out, model)
        return msgspec.structs.replace(usual, stacks=(others[0],), why=why, otherwise=(), left_out=given_up)
    nearest = usual.stacks[-1]
    kind = model.config.get("model_type")
    why = f"no trainer that --stack auto weighs for this job on {FAMILIES[chips]} builds {kind} models"
    if names := builders_elsewhere(model, chips):
        why += f" ({listed(names)} {_do(names)})"
    why += f"; planned as {_title(nearest)} would run it"
    return msgspec.structs.replace(usual, stacks=(nearest,), why=why, otherwise=(), unbuilt=True)


def _do(names: Sequence[str]) -> str:
    """The verb that goes with one name or with several."""
    return "does" if len(names) == 1 else "do"


def judged_as(stack: str, model: Transformer) -> str:
    """Why a plan is judged by a stack whose trainer does not build the model: none that does runs the plan."""
    return f"{_do_not_build((stack,), model)}, and no trainer modelled here that does runs this plan"


def _title(stack: str) -> str:
    trainer = trainer_of(stack)
    return trainer.title if trainer else stack


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, at least one.

    >>> listed(["torchtitan"]), listed(["torchtitan", "MaxText", "TRL"])
    ('torchtitan', 'torchtitan, MaxText and TRL')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _do_not_build(stacks: tuple[str, ...], model: Transformer) -> str:
    """A clause that the trainers of some stacks do not build models of a type, or not its text model alone."""
    kind = str(model.config.get("model_type"))
    with_vision = [stack for stack in stacks if _builds_with_vision(stack, kind)]
    titles = list(dict.fromkeys(_title(stack) for stack in stacks if stack not in with_vision))
    parts = []
    if titles:
        parts.append(f"{listed(titles)} {_do(titles)} not build {kind} models")
    for title in dict.fromkeys(map(_title, with_vision)):
        parts.append(f"{title} builds {kind} models only with their vision encoder")
    return ", and ".join(parts)


def _builds_with_vision(stack: str, kind: str) -> bool:
    """Whether a stack's trainer builds models of a type only with their vision encoder."""
    trainer = trainer_of(stack)
    return trainer is not None and kind in trainer.vision
