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
from dragonscale.models.program import Op
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.plan.settings import shipped_table

FIELDS = ("method", "lora_rank", "lora_targets", "frozen", "teacher", "attention")
"""The names of flags and of entries of a plan file."""
DEFAULT_RANK = 16
MAX_RANK = 4096

# Targets of adapters that are not names of modules; an empty tuple means all of them.
TARGETS: dict[str, tuple[str, ...]] = {"": (), "all": (), "all-linear": (), "attention": ATTENTION}


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of `tuning.toml`."""

    why: str
    adapters: bool = False
    frozen: str = "bf16"
    passes: float = 0.0
    copies: float = 0.0
    logits: bool = True
    teacher: bool = False
    pairs: bool = False


@dataclass(frozen=True)
class Tuning:
    """How a model is tuned: the `method`; the `rank` of adapters (0: every weight is trained) on `targets`; the format
    of frozen weights; forward passes without a gradient, in units of one of the model's (`passes`), and further models
    in memory, in units of its weights (`copies`); whether there are `logits`; whether a method was `asked` for."""

    method: str = "full"
    rank: int = 0
    targets: str = ""
    frozen: str = "bf16"
    passes: float = 0.0
    copies: float = 0.0
    logits: bool = True
    teacher: str = ""
    asked: bool = False
    pairs: bool = False
    """Whether a chosen and a rejected answer pass together, so that no microbatch holds less than two sequences."""
    attention: str = ""
    """The attention that was asked for (`ATTENTIONS`); empty: as the software has it for the model."""

    @property
    def tunes(self) -> bool:
        """Whether it is fine-tuning, for which people use other software."""
        return self.asked or self.method != "full"

    @property
    def adapters(self) -> Adapters:
        """The adapters that a model's program has."""
        weights = frozenset[str]()
        if self.rank:
            weights = target_weights(TARGETS.get(self.targets, _module_names(self.targets)))
        return Adapters(self.rank, weights, not self.logits)

    @property
    def quantized(self) -> bool:
        """Whether frozen weights are in fewer than 16 bits."""
        return self.frozen_bytes < 2

    @property
    def frozen_bytes(self) -> float:
        """Bytes of a frozen weight of a layer's matmuls."""
        return _table()["frozen"][self.frozen]

    def __str__(self) -> str:
        if not self.rank:
            return self.method
        text = "LoRA" if self.frozen == "bf16" else f"LoRA on {self.frozen}"
        text += f" rank {self.rank} ({self.targets or 'all'})"
        if self.method not in ("lora", "qlora"):
            text = f"{self.method} {text}"
        return text


FULL = Tuning()
"""Every weight is trained, on the next token."""


def _module_names(targets: str) -> list[str]:
    return targets.replace(",", " ").split()


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return shipped_table("training.plan", "tuning.toml")


@functools.cache
def methods() -> dict[str, Method]:
    """The methods of `tuning.toml` by name."""
    return msgspec.convert(_table()["methods"], dict[str, Method])


RUN = ("full", "lora", "qlora")
"""What our own program trains."""


def unplanned_run(tuning: Tuning) -> str:
    """Why our own program does not train by a method; empty if it does."""
    if tuning.method in RUN:
        return ""
    return f"stack dragonscale trains by {', '.join(RUN)}, not by {tuning.method}"


def optimizer_named(text: str) -> str:
    """The optimizer of a plan that people mean by a name.

    >>> optimizer_named("adamw_8bit"), optimizer_named("adafactor")
    ('adam8', 'adafactor')
    """
    word = text.strip().lower().replace("_", "-")
    names: dict[str, str] = _table()["optimizers"]
    return names.get(word, word)


def meant_optimizer(text: str) -> str:
    """The optimizer whose name is nearest to a mistyped one; empty where none is near.

    >>> meant_optimizer("admw")
    'adam'
    """
    names: dict[str, str] = _table()["optimizers"]
    return names.get(nearest(text, names), "")


def read_tuning(
    model: Transformer, method: str = "", rank: int = 0, targets: str = "", frozen: str = "", teacher: str = ""
) -> Tuning:
    """How a model is tuned, from the words of a question or a plan file. Impossible combinations are an InputError.

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
    if not 0 <= rank <= MAX_RANK:
        raise InputError(f"--lora-rank is {rank}; the rank of adapters is 1 to {MAX_RANK:,}, such as 16.")
    if frozen and frozen not in _table()["frozen"]:
        raise unknown("format of frozen weights called", frozen, _table()["frozen"])
    # Distillation needs a teacher, other methods have none.
    if bool(teacher.strip()) != row.teacher:
        if row.teacher:
            raise InputError("--method distill needs the model that teaches: --teacher llama3-70b.")
        raise InputError(f"--teacher is of --method distill, and --method is {name}; leave out one of them.")
    if row.adapters and not rank:
        rank = DEFAULT_RANK
    tuning = Tuning(
        method=name,
        rank=rank,
        targets=targets,
        frozen=frozen or row.frozen,
        passes=row.passes,
        copies=0.0 if rank else row.copies,  # without its adapters the model is its own reference
        logits=row.logits,
        teacher=teacher.strip(),
        asked=bool(method.strip()),
        pairs=row.pairs,
    )
    if tuning.teacher:
        tuning = _with_teacher(model, tuning)
    if tuning.rank:
        tuning = replace(tuning, targets=_present_targets(model, tuning))
    return tuning


ATTENTIONS = ("flash", "sdpa", "eager")
"""Attention of transformers' attn_implementation: flash and sdpa are one kernel, eager writes its scores out."""


def with_attention(tuning: Tuning, name: str) -> Tuning:
    """A tuning with the attention that was asked for."""
    word = name.strip().lower().removesuffix("_attention_2").removesuffix("_attention_3")
    if word and word not in ATTENTIONS:
        raise unknown("attention called", name, ATTENTIONS)
    return replace(tuning, attention=word)


def lacking(model: Transformer, targets: str) -> list[str]:
    """The targets of adapters that a model has no matmuls for.

    >>> lacking(load_model("llama3-8b"), "q_proj,experts")
    ['experts']
    """
    if targets in TARGETS:
        return []
    absent: list[str] = []
    for name in _module_names(targets):
        adapters = Tuning(rank=1, targets=name).adapters
        matched = [op for op in _layer_ops(model) if adapters.takes(op)]
        if name == "experts":  # which also names the matmuls of a dense MLP
            matched = [op for op in matched if "e" in op.weights[0].names]
        if not matched:
            absent.append(name)
    return absent


def _layer_ops(model: Transformer) -> list[Op]:
    """The ops of every kind of layer, without the embedding and the head."""
    return [op for section in model.program().sections[1:-1] for op in section.ops]


def _present_targets(model: Transformer, tuning: Tuning) -> str:
    """The targets of adapters that a model has; PEFT passes over the others too, as long as there is one."""
    absent, names = lacking(model, tuning.targets), _module_names(tuning.targets)
    # A name that matches nothing is passed over, unless all of them match nothing.
    any_matched = any(tuning.adapters.takes(op) for op in _layer_ops(model))
    if not any_matched or (names and len(absent) == len(names)):
        raise InputError(f"{model.name} has no matmuls that --lora-targets {tuning.targets} names; write all.")
    if not absent:
        return tuning.targets
    return ",".join(name for name in names if name not in absent)


def _with_teacher(model: Transformer, tuning: Tuning) -> Tuning:
    """The tuning with the teacher's forward pass and weights, both relative to the model's."""
    teacher, work = load_model(tuning.teacher), Workload(1, 1024, 1024)
    student_flops = float(sum(forward_flops(model.program(), work).values()))
    teacher_flops = float(sum(forward_flops(teacher.program(), work).values()))
    copies = count_parameters(teacher).total / count_parameters(model).total
    return replace(tuning, passes=teacher_flops / student_flops, copies=copies)
