"""What `dscale verify` was asked, read at the edge: a plan, where it runs and what of it is to be compiled.

The plan is written out, or a file as `dscale train --save` and `dscale serve --save` write them; flags come before the
file.

>>> asked = read_question(
...     VerifyQuestion("fsdp=8,remat=block", model="llama3-8b", on="h100:8", batch="64Ki", seq="8192")
... )
>>> asked.request.program, asked.request.batch, asked.request.sequence
('train', 8, 8192)

What to compile to verify the answer of `dscale train` or `dscale serve`: the best plan, or the one
that was given.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from dragonscale.commands.given import check_named
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.verify import VerifyQuestion
from dragonscale.commands.train.answered_slice import written_slice
from dragonscale.commands.train.batch import read_batch
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.evidence.verify.records import MODES, Request
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.physics.hardware.catalogue import chip_path
from dragonscale.physics.hardware.slices import slice_note
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.references import found
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan
from dragonscale.serving.engine.plan import read_setting as read_serving_setting
from dragonscale.serving.engine.plan_file import ENTRIES as SERVING_ENTRIES
from dragonscale.tables import read_table
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.plan.auto import AUTO
from dragonscale.training.plan.builds import meant
from dragonscale.training.plan.plan import Plan, settings_of
from dragonscale.training.plan.plan_file import ENTRIES as TRAINING_ENTRIES
from dragonscale.training.plan.plan_file import given_settings, parse_plan
from dragonscale.training.plan.stack import spelt_stack
from dragonscale.training.search.data_ranks import own_ranks
from dragonscale.training.search.stack_search import job_for

PROGRAMS = ("train", "prefill", "decode")
_SERVING_ONLY = ("spread", "weights", "kv", "compute", "attention", "width")
_ENTRIES = tuple(dict.fromkeys((*TRAINING_ENTRIES, *SERVING_ENTRIES)))
_LONGEST, _SMALLEST = 86400.0, 1e8


@dataclass(frozen=True)
class VerifyAsked:
    """The flags understood: what to compile, the seconds and the bytes that may take, what the user should know, and
    the stack that the plan was made for."""

    request: Request
    timeout: float
    memory: float
    notes: tuple[str, ...] = ()
    stack: str = "dragonscale"


def read_question(question: VerifyQuestion) -> VerifyAsked:
    """Check every flag; what cannot be used is refused in one sentence, before anything is compiled."""
    question = _as_text(question)
    # a plan file may say model, slice, batch and length as well
    table = _plan_table(question.plan)
    program = _program(question, table)
    model = question.model or found(_word(table, "model", question.plan), question.plan)
    where = question.on or found(_word(table, "slice", question.plan), question.plan)
    if not model:
        raise InputError("The plan does not say its model; give --model llama3-8b, or write it in the plan file.")
    model = with_assumed(model, question.assume, question.family)
    if not where:
        ask = "give --on h100:8 or --on v5p:4x4x4, or write it in the plan file."
        raise InputError(f"The plan does not say its slice; {ask}")
    load_model(model)
    slice_ = parse_slice(where)
    plan = _plan(question, table, program)
    _check_chips(plan, slice_)
    if question.passes not in MODES:
        raise unknown("kind of passes called", question.passes, MODES)
    program_size = _sizes(question, table, program)
    batch, sequence = program_size.batch, program_size.sequence
    notes = tuple(filter(None, (slice_note(where), *program_size.notes)))
    named = (cast(Any, program), model, where if chip_path(where) else str(slice_), str(plan))
    how = (cast(Any, question.passes), _capacity(table), _options(question.options))
    request = Request(*named, batch, sequence, *how)
    stack = spelt_stack(question.stack) or _word(table, "stack", question.plan) or "dragonscale"
    transformer = load_model(model)
    job = make_job(transformer, slice_, batch, sequence, meant(stack, transformer))
    # the stack that would run the plan
    if stack == AUTO and isinstance(plan, Plan):
        stack = job_for(job, plan).stack.name
    else:
        stack = job.stack.name
    seconds, size = parse(question.timeout, "s", "--timeout"), parse(question.memory_limit, "bytes", "--memory-limit")
    if not 1 <= seconds <= _LONGEST:
        raise InputError(f"--timeout is {shorten(question.timeout)}; give the compiler from one second to a day.")
    if size < _SMALLEST:
        raise InputError(f"--memory-limit is {shorten(question.memory_limit)}; no compiler runs in less than 100 MB.")
    return VerifyAsked(request, seconds, size, notes, stack)


def _as_text(question: VerifyQuestion) -> VerifyQuestion:
    """The things of a question by their names: the compiler works in a process of its own, which knows no objects."""
    check_named(question.model, question.on)
    return replace(question, plan=written(question.plan), model=written(question.model), on=written(question.on))


def _plan_table(text: str) -> dict[str, Any]:
    """A plan file with its `[plan]` table; nothing where the plan is written out."""
    if not text.strip():
        raise InputError("Say which plan to verify, such as fsdp=8,remat=block or plan.toml.")
    if not text.strip().endswith(".toml"):
        return {}
    table = read_table(Path(text.strip()), "Plan file")
    # settings without a [plan] table stand at the top
    if "plan" not in table:
        entries = {name: value for name, value in table.items() if name in _ENTRIES}
        table = {**entries, "plan": {name: value for name, value in table.items() if name not in _ENTRIES}}
    for name in table:
        if name not in _ENTRIES:
            raise unknown(f"entry of the plan file {shorten(text)} called", name, _ENTRIES)
    for name in ("plan", "run"):
        if not isinstance(table.get(name, {}), dict):
            raise InputError(f"In the plan file {shorten(text)} {shorten(name)} is not a table of settings.")
    return table


def _word(table: dict[str, Any], name: str, path: str) -> str:
    value = table.get(name, "")
    if not isinstance(value, str):
        raise InputError(f"In the plan file {shorten(path)} {name} is {shorten(value)}; write it as text.")
    return value


def _program(question: VerifyQuestion, table: dict[str, Any]) -> str:
    """What was said; without that a decode step of a serving plan, a training step of any other."""
    if question.program:
        if question.program not in PROGRAMS:
            raise unknown("program", question.program, PROGRAMS)
        return question.program
    # settings that only serving has mean a decode step
    names = table.get("plan") or [part.partition("=")[0] for part in settings_of(question.plan)]
    serving = "engine" in table or "batch" in table or any(name in _SERVING_ONLY for name in names)
    if serving:
        return "decode"
    return "train"


def _plan(question: VerifyQuestion, table: dict[str, Any], program: str) -> Plan | ServingPlan:
    if program == "train":
        # ranks that the plan names stay as they are
        return own_ranks(parse_plan(question.plan), given_settings(question.plan))
    if not table:
        return parse_serving_plan(question.plan)
    # an empty setting is left to its default
    settings = {name: value for name, value in table["plan"].items() if value != ""}
    return ServingPlan(**{name: read_serving_setting(name, value) for name, value in settings.items()})


def _check_chips(plan: Plan | ServingPlan, slice_: Slice) -> None:
    """A plan is for all chips of its slice; where the compiler sees several devices in a chip, for all of those."""
    devices = slice_.chips * slice_.chip.devices
    if plan.chips not in (slice_.chips, devices):
        raise InputError(
            f"The plan {shorten(str(plan), 90)} is for {plan.chips:,} chips and {slice_} has {slice_.chips:,}; make "
            f"the product of its axes {slice_.chips:,}, or take another slice."
        )


@dataclass(frozen=True)
class _ProgramSize:
    """Sequences of a program, their tokens, and notes on how both were read."""

    batch: int
    sequence: int
    notes: tuple[str, ...]


def _sizes(question: VerifyQuestion, table: dict[str, Any], program: str) -> _ProgramSize:
    """How large the program is, by the flags or the plan file."""
    run = table.get("run", {})
    length_text = question.seq or str(run.get("seq", ""))
    if not length_text.strip():
        tokens = {"train": "tokens of a sequence", "prefill": "tokens of a prompt"}
        what = tokens.get(program, "tokens a cache has room for")
        raise InputError(f"Say how long sequences are ({what}): give --seq 8192, or write seq under [run].")
    sequence, length = parse_length(length_text, "--seq")
    if question.batch.strip() and program == "train":
        batch, note = read_batch(question.batch, sequence)
        return _ProgramSize(batch, sequence, tuple(filter(None, (length, note))))
    counted = question.batch or str(run.get("batch", "") or table.get("batch", ""))
    if not counted.strip():
        if program == "train":
            ask = "--batch 4M (tokens) or --batch 512seq"
        else:
            ask = "--batch 64 (sequences)"
        raise InputError(f"Say how large the batch is: give {ask}, or write it in the plan file.")
    # 512seq is a number of sequences
    for ending in ("sequences", "seqs", "seq"):
        counted = counted.strip().removesuffix(ending)
    batch = parse_count(counted.strip(), "the batch")
    if not 1 <= batch <= 10**9:
        raise InputError(f"The batch is {shorten(counted)}; it has at least one sequence and at most 10^9.")
    return _ProgramSize(batch, sequence, tuple(filter(None, (length,))))


def _capacity(table: dict[str, Any]) -> float:
    """The expert capacity factor, where the file's `[run]` table says one."""
    value = table.get("run", {}).get("capacity", 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1000:
        raise InputError(f"In [run] capacity is {shorten(value)}; write a number from 0 to 1000.")
    return float(value) or 1.0


def _options(several: str) -> dict[str, str]:
    """Options of the compiler, `name=value` each; a comma that no name follows is part of a value.

    >>> _options("xla_a=1,xla_b=two,three")
    {'xla_a': '1', 'xla_b': 'two,three'}
    """
    options: dict[str, str] = {}
    # a comma separates options only where another name follows
    for text in re.split(r",(?=\s*\w+=)", several) if several.strip() else []:
        name, equals, value = map(str.strip, text.partition("="))
        if not equals or not name or not value:
            raise InputError(f"--option is {shorten(text)}; write an option of XLA as name=value.")
        options[name] = value
    return options


def training_question(understood: Any, report: Any) -> VerifyAsked:
    """A training step of the first plan of a `TrainReport`."""
    if understood.job.documents:
        raise InputError("--verify compiles our own program, in which documents see each other; leave out --documents.")
    if understood.question.largest == "model":
        raise InputError("--verify compiles a model that exists; leave out --largest model.")
    check_named(understood.question.model, understood.question.on)
    best, work = report.plans[0], report.workload
    plan, batch = str(best.plan), f"{work.sequences}seq"
    asks = plan, understood.question.model, written_slice(understood, report), batch, str(work.seq), "train"
    return read_question(VerifyQuestion(*asks, stack=best.stack))


def serving_question(understood: Any, report: Any) -> VerifyAsked:
    """A decode step of the first configuration of a `ServeReport`: one copy of the model, room for
    prompts and answers."""
    check_named(understood.question.model, understood.question.on)
    best, work = report.configs[0], report.workload
    tokens, model = work.prompt + work.output, understood.question.model
    where = understood.written_slice(best.copy_slice)
    return read_question(VerifyQuestion(best.plan, model, where, str(best.batch), str(tokens), "decode"))
