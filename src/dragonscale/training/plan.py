"""A plan: how many ways each thing is split, and what is kept, sharded and recomputed.

Mesh axes, slowest first: `pipe` splits the layers, `data` copies the model, `fsdp` splits the batch and the state,
`expert` splits the batch and the experts, `context` splits the sequence, `tensor` splits heads and hidden dims (and the
sequence between blocks). Their product is the number of chips.

>>> plan = parse_plan("fsdp=16,tensor=4,microbatch=2,remat=block")
>>> plan.chips, plan.remat, plan.zero
(64, 'block', 3)
>>> print(plan)
fsdp=16,tensor=4,microbatch=2,remat=block
"""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.hardware.chip import DTYPE_BYTES
from dragonscale.models.activations import REMAT

AXES = ("pipe", "data", "fsdp", "expert", "context", "tensor")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe")
CONTEXTS = ("gather", "ring")
OPTIMIZERS = ("adam", "adam-bf16", "adafactor", "muon", "sgd")
POLICIES = (*REMAT, "offload")


@dataclass(frozen=True)
class Plan:
    """One way to split a training step. `microbatch` counts sequences per data-parallel chip and pass; `virtual` is the
    number of stages each pipeline rank holds; `zero` says how much of the state `fsdp` splits (1 optimizer, 2 gradients
    too, 3 weights too)."""

    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1
    pipe: int = 1
    microbatch: int = 1
    virtual: int = 1
    remat: str = "none"
    zero: int = 3
    dtype: str = "bf16"
    schedule: str = "1f1b"
    sequence: bool = True
    ring: bool = False
    optimizer: str = "adam"

    @property
    def chips(self) -> int:
        """Chips of the whole mesh."""
        return self.data * self.fsdp * self.tensor * self.context * self.expert * self.pipe

    @property
    def replicas(self) -> int:
        """Ways the batch is split."""
        return self.data * self.fsdp * self.expert

    def __str__(self) -> str:
        default = Plan()
        changed = [field.name for field in fields(self) if getattr(self, field.name) != getattr(default, field.name)]
        return ",".join(f"{name}={_written(getattr(self, name))}" for name in changed) or "data=1"


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_CHOICES: dict[str, tuple[str, ...]] = {
    "remat": POLICIES,
    "schedule": SCHEDULES,
    "optimizer": OPTIMIZERS,
    "dtype": tuple(DTYPE_BYTES),
}


def read_field(name: str, value: Any) -> Any:
    """One entry of a plan, checked."""
    kinds = {field.name: field.type for field in fields(Plan)}
    if name not in kinds:
        raise unknown("part of a plan called", name, kinds)
    text = str(value).strip()
    if name in _CHOICES:
        if text not in _CHOICES[name]:
            raise unknown(f"{name} policy" if name == "remat" else name, text, _CHOICES[name])
        return text
    if name in ("sequence", "ring"):
        if text.lower() not in ("true", "false", "1", "0"):
            raise InputError(f"In a plan {name} is {shorten(value)}; write true or false.")
        return text.lower() in ("true", "1")
    if not re.fullmatch(r"\d{1,7}", text) or (int(text) < 1 and name != "zero"):
        raise InputError(f"In a plan {name} is {shorten(value)}; write a whole number of at least 1.")
    if name == "zero" and int(text) > 3:
        raise InputError(f"In a plan zero is {text}; ZeRO has the stages 0, 1, 2 and 3.")
    return int(text)


def unrunnable(plan: Plan) -> str:
    """Why our own program does not run a plan; empty if it does."""
    if plan.remat == "offload":
        return "activations in the host's memory (remat=offload) are not programmed yet"
    if plan.schedule in ("zero-bubble", "dualpipe") and plan.pipe > 1:
        return f"the schedule {plan.schedule} is planned but not programmed yet"
    if plan.dtype not in ("bf16", "fp32"):
        return f"matmuls in {plan.dtype} are not programmed yet"
    if plan.ring and plan.pipe > 1 and plan.context > 1:
        return "ring attention inside pipeline stages is not programmed yet"
    return ""


def parse_plan(text: str) -> Plan:
    """Read `data=2,fsdp=16,tensor=4,…`, or the TOML file of that name."""
    if text.strip().endswith(".toml"):
        return load_plan(text.strip())
    plan = Plan()
    seen: set[str] = set()
    for part in text.split(",") if text.strip() else []:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(
                f"In the plan {shorten(text)} the part {shorten(part)} is not a setting; write it as 'tensor=4'."
            )
        if name in seen:
            raise InputError(f"In the plan {shorten(text)} {name} is given twice.")
        seen.add(name)
        plan = replace(plan, **{name: read_field(name, value)})
    return plan


def load_plan(path: str) -> Plan:
    """A plan from a TOML file, whose `[plan]` table (or whole) holds the settings."""
    from dragonscale.tables import read_table

    table = read_table(Path(path), "Plan file")
    settings = table.get("plan", table)
    if not isinstance(settings, dict):
        raise InputError(f"In the plan file {shorten(path)} 'plan' is not a table of settings.")
    return replace(Plan(), **{name: read_field(name, value) for name, value in settings.items()})


def save_plan(plan: Plan, path: str, model: str, piece: str, stack: str = "") -> None:
    """Write a plan with what it is for."""
    made_for = [f'stack = "{stack}"'] if stack else []
    lines = [f'model = "{model}"', f'slice = "{piece}"', *made_for, "", "[plan]"]
    for field in fields(plan):
        value = getattr(plan, field.name)
        lines.append(f'{field.name} = "{value}"' if isinstance(value, str) else f"{field.name} = {_written(value)}")
    try:
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"The plan cannot be written to {shorten(path)}: {error.strerror}.") from None
