"""What is to be run: a plan file with a `[run]` table, or the same as flags.

    model = "llama3-8b"
    slice = "h100:8"

    [plan]
    fsdp = 8
    microbatch = 2
    remat = "block"

    [run]
    data = ["corpus/*.bin"]
    steps = 10000
    batch = 128
    seq = 8192
    learning_rate = 3e-4
    checkpoints = "runs/first"

Everything is checked before JAX is loaded, so that a slip is answered in a blink.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.units import parse_count, parse_length
from dragonscale.training.plan.pipeline_order import check as check_schedule
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import (
    TrainingFile,
    given_settings,
    is_plan_path,
    load_training_file,
    parse_plan,
)
from dragonscale.training.plan.tuning import FIELDS, Tuning, read_tuning
from dragonscale.training.search.data_ranks import own_ranks
from dragonscale.training.search.legal import unrunnable

_FLOATS = {
    "learning_rate": 1e3,
    "weight_decay": 10.0,
    "clip": 1e6,
    "final": 1.0,
    "capacity": 1e3,
    "lora_alpha": 1e4,
    "balance": 10.0,
}
"""Settings that are no whole numbers: they go from 0 to so much."""
_LEAST = {"warmup": 0, "seed": 0, "every": 0, "eval_every": 0}
_MOST = 2**40


@dataclass(frozen=True)
class RunSettings:
    """The `[run]` table. `batch` counts sequences of a step over all devices; `every` is how many steps lie between
    checkpoints (0: only at the end), `keep` how many of them stay; the learning rate climbs for `warmup` steps and
    falls along a cosine to `final` of itself at the last step; `clip` is the max gradient norm (0: no clipping).
    `capacity` is the room of each expert on each chip over its even share, beyond which tokens are dropped (0: none
    ever is; None: as `settle_capacity` says). `weights` is a folder of Hugging Face `.safetensors` files to begin from
    (none: random weights), `save_weights` one to write the result to. `tokenizer` is the folder of what makes tokens of
    documents. `eval_data` is held out: the loss on `eval_batches` of it is taken every `eval_every` steps (0: at the
    end). What adapters add is multiplied by `lora_alpha` over their rank (0: by two). `tensorboard` is a folder,
    `wandb` a project, whose runs stay on this machine. With `mask_documents` the documents of a sequence do not see
    each other. `balance` is the coefficient of a loss that balances experts."""

    data: tuple[str, ...] = ()
    steps: int = 0
    batch: int = 0
    seq: int = 0
    learning_rate: float = 3e-4
    warmup: int = 0
    final: float = 0.1
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    checkpoints: str = ""
    every: int = 1000
    keep: int = 3
    metrics: str = ""
    dtype: str = ""
    tokens: str = ""
    capacity: float | None = None
    weights: str = ""
    save_weights: str = ""
    tokenizer: str = ""
    eval_data: tuple[str, ...] = ()
    eval_every: int = 0
    eval_batches: int = 8
    lora_alpha: float = 0.0
    tensorboard: str = ""
    wandb: str = ""
    mask_documents: bool = False
    balance: float = 0.0


@dataclass(frozen=True)
class Order:
    """A run in full: the model by name, the slice its plan was made for (or none), the plan, the settings, and what of
    the model is trained."""

    model: str
    slice: str
    plan: Plan
    run: RunSettings
    tuning: Tuning = Tuning()

    @property
    def adapter_scale(self) -> float:
        """What adapters add is multiplied by this."""
        alpha = self.run.lora_alpha
        return alpha / self.tuning.rank if alpha and self.tuning.rank else ADAPTER_SCALE

    def tuned(self) -> Transformer:
        """The model with its adapters."""
        return replace(load_model(self.model), adapters=self.tuning.adapters)

    @property
    def microbatches(self) -> int:
        """Parts of a step's batch, whose gradients are added up."""
        return self.run.batch // (self.plan.replicas * self.plan.microbatch)

    @property
    def passes(self) -> int:
        """How often a step goes through the model: a pipeline takes all microbatches in one."""
        return 1 if self.plan.pipe > 1 else self.microbatches


EVEN_SHARE = 1.0
ADAPTER_SCALE = 2.0
"""An alpha of twice the rank, as most recipes have."""
METHODS = ("full", "lora", "qlora")
"""What our own program trains."""


def settle_capacity(order: Order, expands: bool) -> Order:
    """An order that says what room experts have. Where nobody did, none of their tokens are dropped, but where XLA
    `expands` rows to all experts they have room for their even share."""
    if order.run.capacity is not None:
        return order
    return replace(order, run=replace(order.run, capacity=EVEN_SHARE if expands else 0.0))


def learning_rate(run: RunSettings, done: int) -> float:
    """Of the step after `done` others: up along a line, down along a cosine.

    >>> run = RunSettings(steps=100, learning_rate=1.0, warmup=4, final=0.1)
    >>> [round(learning_rate(run, done), 3) for done in (0, 3, 4, 52, 100)]
    [0.25, 1.0, 1.0, 0.55, 0.1]
    """
    if done < run.warmup:
        return run.learning_rate * (done + 1) / run.warmup
    part = min(1.0, (done - run.warmup) / max(run.steps - run.warmup, 1))
    return run.learning_rate * (run.final + (1 - run.final) * (1 + math.cos(math.pi * part)) / 2)


def read_order(
    plan: str,
    model: str = "",
    on: str = "",
    changes: Mapping[str, Any] | None = None,
    tuned: Mapping[str, Any] | None = None,
) -> Order:
    """What a plan file (or a plan written out) and flags ask for; flags come before the file. `tuned` are those of
    fine-tuning."""
    saved = (
        load_training_file(plan) if is_plan_path(plan) else TrainingFile(parse_plan(plan), named=given_settings(plan))
    )
    saved = replace(saved, plan=own_ranks(saved.plan, saved.named))
    settings = {**saved.run, **(changes or {})}
    run = replace(RunSettings(), **{name: _read(name, value) for name, value in settings.items()})
    words = {name: (tuned or {}).get(name) or getattr(saved, name) for name in FIELDS}
    order = Order(model or saved.model, on or saved.slice, saved.plan, run)
    if order.model and any(words.values()):
        order = replace(order, tuning=read_tuning(load_model(order.model), *words.values()))
    return check(replace(order, run=replace(run, dtype=run.dtype or saved.plan.dtype)))


def _read(name: str, value: Any) -> Any:
    """One setting of a run, checked."""
    kinds = {field.name: field.type for field in fields(RunSettings)}
    if name not in kinds:
        raise unknown("setting of a run called", name, kinds)
    if name in ("data", "eval_data"):
        files = [value] if isinstance(value, str) else value
        if not isinstance(files, list | tuple) or not all(isinstance(one, str) and one for one in files):
            raise InputError(f"In [run] {name} is {shorten(value)}; write a file of tokens, or a list of them.")
        return tuple(files)
    if kinds[name] is bool:
        if not isinstance(value, bool):
            raise InputError(f"In [run] {name} is {shorten(value)}; write true or false.")
        return value
    if kinds[name] is str:
        if not isinstance(value, str) or "\0" in value:
            raise InputError(f"In [run] {name} is {shorten(value)}; write text.")
        return value
    value = _counted(name, value) if isinstance(value, str) else value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _FLOATS:
        if not number or not 0 <= value <= _FLOATS[name]:
            raise InputError(f"In [run] {name} is {shorten(value)}; write a number from 0 to {_FLOATS[name]:g}.")
        return float(value)
    least = _LEAST.get(name, 1)
    if not number or value != value or int(value) != value or not least <= value <= _MOST:
        raise InputError(f"In [run] {name} is {shorten(value)}; write a whole number of at least {least}.")
    return int(value)


def _counted(name: str, text: str) -> Any:
    """A length (`32k`) or a number of sequences (`192seq`) that is written as text."""
    if name == "seq":
        return parse_length(text, "--seq")[0]
    if name == "batch":
        return parse_count(re.sub(r"\s*(sequences|sequence|seqs|seq)\s*$", "", text), "the batch")
    return text


def check(order: Order) -> Order:
    """Settings that contradict each other, or that nothing here can do, are refused."""
    plan, run = order.plan, order.run
    if not order.model:
        raise InputError('The run has no model; write model = "llama3-8b" in the plan file, or give --model.')
    for name, what in (("data", "token files"), ("steps", "steps"), ("batch", "sequences"), ("seq", "tokens")):
        if not getattr(run, name):
            raise InputError(f"The run does not say its {name} ({what}); write it under [run], or give --{name}.")
    share = plan.replicas * plan.microbatch
    if run.batch % share:
        raise InputError(
            f"A batch of {run.batch} sequences does not divide into {plan.replicas} replicas x microbatches of "
            f"{plan.microbatch}; make it a multiple of {share}."
        )
    degree = plan.context * plan.tensor
    if run.seq % degree:
        raise InputError(
            f"Sequences of {run.seq} tokens do not divide over context={plan.context} and tensor={plan.tensor}; make "
            f"them a multiple of {degree}."
        )
    if why := unrunnable(replace(plan, dtype=run.dtype), load_model(order.model)):
        raise InputError(f"Our own program cannot run the plan: {why}.")
    _check_tuning(order)
    if run.balance and not any("e" in section.dims for section in load_model(order.model).program().sections):
        raise InputError(f"balance is the weight of a loss that balances experts, and {order.model} has none.")
    if run.mask_documents and plan.pipe > 1:
        raise InputError(
            f"Our own program keeps documents apart in plans without pipeline stages, and pipe is {plan.pipe}."
        )
    if plan.pipe > 1:
        check_schedule(plan.schedule, plan.pipe, plan.virtual, order.microbatches)
    if run.tokens not in ("", "uint16", "uint32"):
        raise unknown("type of tokens", run.tokens, ("uint16", "uint32"))
    return order


def _check_tuning(order: Order) -> None:
    """What is trained otherwise than by our own program is refused."""
    tuning, plan = order.tuning, order.plan
    if tuning.method not in METHODS:
        only = f"{', '.join(METHODS[:-1])} and {METHODS[-1]}"
        raise InputError(f"Our own program trains {only}; --method {tuning.method} is planned, not run.")
    if not tuning.rank:
        return
    if plan.pipe > 1:
        raise InputError(f"Our own program has adapters in plans without pipeline stages, and pipe is {plan.pipe}.")
    if plan.optimizer == "muon":
        raise InputError("Muon is for the matrices of layers, and only adapters are trained; take optimizer=adam.")
