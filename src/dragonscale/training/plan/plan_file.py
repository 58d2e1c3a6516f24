"""Training plans as TOML files: what `dscale train --save` writes, and `train --plan`, `verify` and
`run train` read. With one of them nothing else has to be said.

    model = "llama3-8b"       # or a path: relative to this file, or absolute
    slice = "h100:8"
    stack = "megatron-core"
    numerics = "benchmark"    # gradients as in the stack's published benchmarks; without it as in production
    method = "lora"           # or qlora, dpo …; lora_rank, lora_targets, frozen and teacher as the flags
    tokens = "15T"            # of the whole run
    price = "2.5/h"

    [plan]
    fsdp = 8
    remat = "block"

    [run]
    batch = 128               # sequences of a step
    seq = 8192                # tokens of a sequence

Everything but the plan may be left out; a file without a `[plan]` table is a table of settings
itself. The rest of `[run]` is for `dscale run train`, which checks it. An entry that is not known is
refused with the nearest that is.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.files import write_file
from dragonscale.plan.plan_file import check_plan_path, is_plan_path, plan_text, settings_table, table_in, texts_in
from dragonscale.references import kept
from dragonscale.tables import read_table
from dragonscale.training.plan.plan import Plan, plan_of_words, read_field, read_setting, settings_in_words
from dragonscale.training.plan.tuning import FIELDS, MAX_RANK

TUNED = tuple(name for name in FIELDS if name != "lora_rank")
WORDS = ("model", "slice", "stack", "numerics", "tokens", "price", "documents", *TUNED)
# Settings of experts and adapters, and the range of each.
RANGES = {"skew": (1.0, 1000.0), "capacity": (0.0, 1000.0), "lora_rank": (1, MAX_RANK)}
ENTRIES = (*WORDS, "lora_rank", "skew", "plan", "run")
_STEPS = ("data", "steps", "batch", "seq", "learning_rate", "warmup", "final", "weight_decay", "clip", "seed")
RUN = (*_STEPS, "checkpoints", "every", "keep", "metrics", "dtype", "tokens", "capacity", "weights")
RUN += ("tokenizer", "eval_data", "eval_every", "eval_batches", "save_weights", "tensorboard", "wandb", "lora_alpha")
RUN += ("mask_documents", "balance")
"""The names of a `[run]` table."""


@dataclass(frozen=True)
class TrainingFile:
    """A plan and what it was made for; empty texts and zeros stand for what the file leaves out. `named` are the
    settings of the plan that it has, `run` is the `[run]` table as it was written."""

    plan: Plan
    model: str = ""
    slice: str = ""
    stack: str = ""
    numerics: str = ""
    tokens: str = ""
    price: str = ""
    documents: str = ""
    method: str = ""
    lora_rank: int = 0
    lora_targets: str = ""
    attention: str = ""
    frozen: str = ""
    teacher: str = ""
    batch: int = 0
    seq: int = 0
    skew: float = 0.0
    capacity: float = 0.0
    named: frozenset[str] = frozenset()
    run: dict[str, Any] = field(default_factory=dict)


# Entries that only a serving plan has.
SERVES = frozenset({"engine", "replicas", "traffic", "targets", "launch", "speculation", "prefill"})


def load_training_file(path: str | Path) -> TrainingFile:
    """A plan file, every entry of it checked."""
    path, shown = str(path).strip(), shorten(str(path).strip())
    table = read_table(Path(path), "Plan file")
    # A serving plan has entries that a training plan never has.
    if "run" not in table and not SERVES.isdisjoint(table):
        raise InputError(
            f"{shown} is a serving plan, which `dscale serve --plan` and `dscale simulate` read; a training plan is "
            "what `dscale train … --save FILE` writes."
        )
    settings, run = settings_table(table, ENTRIES, shown, closed=True), table_in(table, "run", shown, RUN)
    texts = texts_in(table, WORDS, path, numeric=("tokens", "documents"))
    # Settings may have their short names, as on the command line.
    named = dict(read_setting(f"{name}={value}", path) for name, value in settings.items())
    plan = replace(Plan(), **{name: read_field(name, value) for name, value in named.items()})
    return TrainingFile(
        plan,
        **texts,
        batch=_count(run.get("batch", 0), "batch", shown),
        seq=_count(run.get("seq", 0), "seq", shown),
        skew=_number(table.get("skew", 0), "skew", shown),
        lora_rank=int(_number(table.get("lora_rank", 0), "lora_rank", shown)),
        capacity=_number(run.get("capacity", 0), "capacity", shown),
        named=frozenset(named),
        run=run,
    )


def _count(value: Any, name: str, shown: str) -> int:
    what = {"batch": "sequences", "seq": "tokens"}[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not 0 <= value <= 10**12:
        raise InputError(f"In [run] of the plan file {shown} {name} is {shorten(value)}; write a number of {what}.")
    return int(value)


def _number(value: Any, name: str, shown: str) -> float:
    smallest, largest = RANGES[name]
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not smallest <= value <= largest:
        raise InputError(
            f"In the plan file {shown} {name} is {shorten(value)}; write a number from {smallest:g} to {largest:g}."
        )
    return float(value)


def save_training_file(saved: TrainingFile, path: str | Path) -> None:
    """Write a plan and everything that it was made for to a file."""
    check_plan_path(path)
    named = replace(saved, model=kept(saved.model, path), slice=kept(saved.slice, path))
    write_file(path, training_file_text(named), "The plan")


def training_file_text(saved: TrainingFile) -> str:
    """A plan and everything that it was made for as TOML."""
    entries = {name: getattr(saved, name) for name in WORDS} | {"lora_rank": saved.lora_rank}
    entries["skew"] = 0 if saved.skew == 1 else saved.skew  # an even load is the default and is left out
    run = {"batch": saved.batch, "seq": saved.seq, "capacity": saved.capacity, **saved.run}
    return plan_text(
        entries, {"plan": saved.plan.all_settings, "run": {name: value for name, value in run.items() if value}}
    )


def parse_plan(text: str) -> Plan:
    """The plan that a text means: settings (`fsdp=16,tensor=4`, `fsdp16 tp4`), or the name of a TOML file.

    >>> print(parse_plan("fsdp2 tp8 pp4"))
    fsdp=2,tensor=8,pipe=4
    """
    return load_training_file(text).plan if is_plan_path(text) else plan_of_words(text)


def given_settings(text: str) -> frozenset[str]:
    """The settings that a plan's text or file names, as `parse_plan` reads it.

    >>> sorted(given_settings("tp8 pp4 block"))
    ['pipe', 'remat', 'tensor']
    """
    return load_training_file(text).named if is_plan_path(text) else settings_in_words(text)
