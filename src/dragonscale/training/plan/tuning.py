"""What of a model is trained, and what runs beside it: full training, adapters, preferences, a teacher.

A method is a row of `tuning.toml`. Adapters are lines of the model's own program (`models.lora`), so kernels, moves,
saved activations and state follow from there; what is left is the format of frozen weights, and the passes and copies
of models that are not trained: a reference or a teacher.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.errors import InputError, nearest, unknown
from dragonscale.models import load_model
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.lora import ATTENTION, Adapters, target_weights
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.plan.settings import shipped_table

FIELDS = ("method", "lora_rank", "lora_targets", "frozen", "teacher")
"""The names of flags and of entries of a plan file."""
RANK, MOST_RANK = 16, 4096
"""The rank of adapters that nobody named, and the largest that is taken."""

WORDS: dict[str, tuple[str, ...]] = {"": (), "all": (), "all-linear": (), "attention": ATTENTION}
"""Targets that are no names of modules."""


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of `tuning.toml`."""

    why: str
    adapters: bool = False
    frozen: str = "bf16"
    passes: float = 0.0
    copies: float = 0.0
    logits: bool = True
    teacher: bool = False


@dataclass(frozen=True)
class Tuning:
    """How a model is tuned: the `method`; the `rank` of adapters (0: every weight is trained) on `targets`; the format
    of frozen weights; forward passes without a gradient over one of the model's (`passes`) and models that lie beside
    it over its own weights (`copies`); whether there are `logits`; whether a method was `asked` for."""

    method: str = "full"
    rank: int = 0
    targets: str = ""
    frozen: str = "bf16"
    passes: float = 0.0
    copies: float = 0.0
    logits: bool = True
    teacher: str = ""
    asked: bool = False

    @property
    def tunes(self) -> bool:
        """Whether it is fine-tuning: software of its own is usual for that."""
        return self.asked or self.method != "full"

    @property
    def adapters(self) -> Adapters:
        """The adapters that a model's program has."""
        named = self.targets.replace(",", " ").split()
        weights = target_weights(WORDS.get(self.targets, named)) if self.rank else frozenset[str]()
        return Adapters(self.rank, weights, not self.logits)

    @property
    def frozen_bytes(self) -> float:
        """Bytes of a frozen weight of a layer's matmuls."""
        return _table()["frozen"][self.frozen]

    def __str__(self) -> str:
        if not self.rank:
            return self.method
        words = [] if self.method in ("lora", "qlora") else [self.method]
        kind = "LoRA" if self.frozen == "bf16" else f"LoRA on {self.frozen}"
        return " ".join([*words, kind, f"rank {self.rank}", f"({self.targets or 'all'})"])


FULL = Tuning()
"""Every weight on the next token."""


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return shipped_table("training.plan", "tuning.toml")


@functools.cache
def methods() -> dict[str, Method]:
    """The methods that are known, by name."""
    return msgspec.convert(_table()["methods"], dict[str, Method])


RUN = ("full", "lora", "qlora")
"""What our own program trains."""


def unplanned_run(tuning: Tuning) -> str:
    """Why our own program does not train by a method; empty if it does."""
    return "" if tuning.method in RUN else f"stack dragonscale trains by {', '.join(RUN)}, not by {tuning.method}"


def optimizer_named(text: str) -> str:
    """An optimizer of a plan by what people call it.

    >>> optimizer_named("adamw_8bit"), optimizer_named("adafactor")
    ('adam8', 'adafactor')
    """
    word = text.strip().lower().replace("_", "-")
    known: dict[str, str] = _table()["optimizers"]
    return known.get(word, word)


def meant_optimizer(text: str) -> str:
    """The optimizer of a plan whose name people mistyped; empty where none is near.

    >>> meant_optimizer("admw")
    'adam'
    """
    known: dict[str, str] = _table()["optimizers"]
    return known.get(nearest(text, known), "")


def read_tuning(
    model: Transformer, method: str = "", rank: int = 0, targets: str = "", frozen: str = "", teacher: str = ""
) -> Tuning:
    """The words of a question or a plan file, checked: what cannot be is refused in a sentence.

    >>> print(read_tuning(load_model("llama3-8b"), "qlora", 8, "attention"))
    LoRA on nf4 rank 8 (attention)
    """
    name, targets, frozen = method.strip().lower() or "full", targets.strip().lower(), frozen.strip().lower()
    if other := _table()["others"].get(name):
        raise InputError(f"--method {name} is not planned here: {other}.")
    if name not in methods():
        raise unknown("method called", method, methods())
    row = methods()[name]
    if name == "full" and (rank or targets or frozen):
        raise InputError("--method full trains every weight; for adapters write --method lora or qlora.")
    if (targets or frozen) and not (row.adapters or rank):
        raise InputError(
            f"--lora-targets and --frozen are of adapters; give --method {name} a --lora-rank, such as 16."
        )
    if not 0 <= rank <= MOST_RANK:
        raise InputError(f"--lora-rank is {rank}; the rank of adapters is 1 to {MOST_RANK:,}, such as 16.")
    if frozen and frozen not in _table()["frozen"]:
        raise unknown("format of frozen weights called", frozen, _table()["frozen"])
    if bool(teacher.strip()) != row.teacher:
        if row.teacher:
            raise InputError("--method distill needs the model that teaches: --teacher llama3-70b.")
        raise InputError(f"--teacher is of --method distill, and --method is {name}; leave out one of them.")
    rank = rank or (RANK if row.adapters else 0)
    copies = 0.0 if rank else row.copies
    found = Tuning(name, rank, targets, frozen or row.frozen, row.passes, copies, row.logits, teacher.strip())
    found = replace(found, asked=bool(method.strip()))
    found = _taught(model, found) if found.teacher else found
    return replace(found, targets=_present(model, found)) if found.rank else found


def lacking(model: Transformer, targets: str) -> list[str]:
    """The targets of adapters that a model has no matmuls for.

    >>> lacking(load_model("llama3-8b"), "q_proj,experts")
    ['experts']
    """
    found, ops = list[str](), [op for one in model.program().sections[1:-1] for op in one.ops]
    for word in [] if targets in WORDS else targets.replace(",", " ").split():
        weights = Tuning(rank=1, targets=word).adapters
        taken = [op for op in ops if weights.takes(op) and (word != "experts" or "e" in op.weights[0].names)]
        found += [] if taken else [word]
    return found


def _present(model: Transformer, tuning: Tuning) -> str:
    """The targets of adapters that a model has; PEFT passes over the others too, as long as there is one."""
    absent, words = lacking(model, tuning.targets), tuning.targets.replace(",", " ").split()
    some = any(tuning.adapters.takes(op) for one in model.program().sections[1:-1] for op in one.ops)
    if not some or (words and len(absent) == len(words)):
        raise InputError(f"{model.name} has no matmuls that --lora-targets {tuning.targets} names; write all.")
    return ",".join(word for word in words if word not in absent) if absent else tuning.targets


def _taught(model: Transformer, tuning: Tuning) -> Tuning:
    """With the teacher's forward pass and weights over those of the model."""
    teacher, work = load_model(tuning.teacher), Workload(1, 1024, 1024)
    own, other = (float(sum(forward_flops(one.program(), work).values())) for one in (model, teacher))
    copies = count_parameters(teacher).total / count_parameters(model).total
    return replace(tuning, passes=other / own, copies=copies)
