"""What `dscale compare` was asked, read at the edge: every combination of plans, slices and software that is to be
looked at."""

import re
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from dragonscale.app.questions.compare import CompareQuestion
from dragonscale.app.questions.flag import written
from dragonscale.app.record import Record
from dragonscale.errors import InputError, shorten
from dragonscale.models.catalogue import is_preset
from dragonscale.tables import read_table

BEST = "best"
MOST = 12
"""Sides that are still read side by side."""
_SERVING = {"engine", "traffic", "targets", "launch", "speculation", "prefill", "replicas"}
"""Entries of a plan file that only a serving plan has."""
_MEASURED = re.compile(r"(?P<plan>.*\S)\s*=\s*(?P<time>[\d.]+\s*(?:ms|s|min))")


@dataclass(frozen=True)
class Contender:
    """A plan (empty: the best one) on a slice with a software; and the step that was measured of it."""

    plan: Any = ""
    on: Any = ""
    software: str = ""
    measured: str = ""


@dataclass(frozen=True)
class CompareAsked:
    """What to look at; `given` are answers that were there already."""

    question: CompareQuestion
    serving: bool
    candidates: list[Contender] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)


def read_question(question: CompareQuestion) -> CompareAsked:
    """Check what was given; what cannot be compared is refused in one sentence."""
    from dragonscale.app.serve.records import ServeReport
    from dragonscale.app.train.records import TrainReport

    question = _with_model(question)
    given = [thing for thing in question.things if isinstance(thing, TrainReport | ServeReport)]
    if given:
        return _of_answers(question, given)
    plans = [_read_plan(thing) for thing in question.things] or [Contender()]
    serving = _serves(question, plans)
    places = _several(question.on)
    programs = _programs(question.engine if serving else question.stack)
    candidates = [replace(plan, on=on, software=software) for plan, on, software in product(plans, places, programs)]
    if question.measured.strip():
        candidates[0] = replace(candidates[0], measured=question.measured.strip())
    if not 2 <= len(candidates) <= MOST:
        raise InputError(
            f"A comparison has 2 to {MOST} sides and this has {len(candidates)}; give several plans "
            '("tp8 pp4 dp16" best), several slices (--on h100:512,v5p:8x8x8) or several of --stack or --engine.'
        )
    if not written(question.model) and not any(str(one.plan).endswith(".toml") for one in candidates):
        raise InputError("The comparison lacks a model; give --model, such as llama3-70b.")
    if serving and any(one.measured for one in candidates):
        raise InputError("A measured time is that of a training step; leave it out, or --prompt and --output.")
    return CompareAsked(question, serving, candidates)


def _with_model(question: CompareQuestion) -> CompareQuestion:
    """The question with a model's name that stands before the plans taken as its model, as `train` takes it."""
    first = question.things[0] if question.things else None
    if not isinstance(first, str) or not is_preset(first.strip()):
        return question
    if written(question.model):
        raise InputError(
            f"{shorten(first)} is a model and --model is {shorten(written(question.model))}; give one of them."
        )
    return replace(question, model=first.strip(), things=tuple(question.things[1:]))


def _of_answers(question: CompareQuestion, given: list[Any]) -> CompareAsked:
    """Answers that are there already."""
    if len(given) != len(question.things):
        raise InputError("Answers are compared with answers: ask for the others first, with ds.train or ds.serve.")
    if len({type(one) for one in given}) > 1:
        raise InputError("A training answer and a serving answer have no step in common; compare answers of one kind.")
    serving = not hasattr(given[0], "plans")
    every = len(given[0].configs if serving else given[0].plans)
    if len(given) == 1 and every < 2:
        raise InputError("One answer with one plan has nothing to be compared with; give another.")
    return CompareAsked(question, serving, given=given)


def _read_plan(thing: Any) -> Contender:
    """A plan as it was written, with the step that was measured of it.

    >>> _read_plan("tp8 pp4=8.2s")
    Contender(plan='tp8 pp4', on='', software='', measured='8.2s')
    >>> _read_plan("tp=8,pp=4").plan, _read_plan("Best").plan
    ('tp=8,pp=4', '')
    """
    if isinstance(thing, Record):
        raise InputError(f"{type(thing).__name__} has no plans to compare; give answers of ds.train or ds.serve.")
    text = written(thing).strip()
    if not text:
        raise InputError('A plan is empty; write one such as "tp8 pp4 dp16", or best.')
    found = _MEASURED.fullmatch(text)
    plan, measured = (found["plan"], found["time"]) if found else (text, "")
    if plan.lower() == BEST:
        if measured:
            raise InputError("What was measured was a plan; write it instead of 'best'.")
        return Contender()
    return Contender(plan, measured=measured)


def _serves(question: CompareQuestion, plans: list[Contender]) -> bool:
    """Whether it is about serving: its lengths or engines are given, or a plan file is one of serving."""
    asked = any((question.prompt, question.output, question.engine, question.ttft, question.tpot))
    saved = [_is_serving_file(one.plan) for one in plans if str(one.plan).endswith(".toml")]
    if any((question.seq, question.tokens, question.stack)) and (asked or any(saved)):
        raise InputError("--seq, --tokens and --stack are of training, --prompt, --output and --engine of serving.")
    if len(set(saved)) > 1:
        raise InputError("One plan file is of training and another of serving; compare plans of one kind.")
    return asked or any(saved)


def _is_serving_file(path: str) -> bool:
    return bool(_SERVING & set(read_table(Path(path), "Plan file")))


def _several(things: Any) -> list[Any]:
    """Slices as they were given, with commas or in a list."""
    if isinstance(things, list | tuple):
        return list(things)
    if not isinstance(things, str):
        return [things]
    return [part.strip() for part in things.split(",") if part.strip()] or [""]


def _programs(text: str) -> list[str]:
    """Stacks or engines; what has an = is a setting of the one before it.

    >>> _programs("vllm,max_seqs=64,sglang"), _programs("")
    (['vllm,max_seqs=64', 'sglang'], [''])
    """
    found: list[str] = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        if "=" in part:
            if not found:
                raise InputError(f"{shorten(part)} is a setting without an engine before it.")
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found or [""]
