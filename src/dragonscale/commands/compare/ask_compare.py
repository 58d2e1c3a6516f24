"""`dscale compare` asked: every combination of plans, slices and software that is to be looked at, each asked as
`train` or `serve` would be, then held against the first."""

import re
import shlex
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from dragonscale.blocks.sheet import NextStep, Sheet
from dragonscale.commands.compare.compare_charts import draw
from dragonscale.commands.compare.compare_records import CompareReport, Side
from dragonscale.commands.compare.compare_sheet import compare_sheet
from dragonscale.commands.compare.sides import (
    DOLLARS,
    TOKENS,
    difference,
    keyed,
    seconds_of,
    serving_side,
    training_side,
)
from dragonscale.commands.given import unnamed
from dragonscale.commands.overtake import overtaking, price_where
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import CompareQuestion, TrainQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.serve_question import ServeQuestion
from dragonscale.commands.serve.serve_question import read_question as read_serving
from dragonscale.commands.serve.serve_question import said_by as saved_words
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.train.answered_slice import chosen_slice
from dragonscale.commands.train.ask_train import ask as ask_train
from dragonscale.commands.train.plan_flags import said_by
from dragonscale.commands.train.train_records import TrainReport
from dragonscale.errors import InputError, shorten
from dragonscale.listener import Listener
from dragonscale.models.catalogue import is_preset
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.physics.hardware.prices import StrangePrice
from dragonscale.serving.engine.plan_file import load_serving_plan
from dragonscale.tables import read_table
from dragonscale.training.plan.plan_file import is_plan_path, load_training_file
from dragonscale.training.plan.tuning import FIELDS

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
    question = _with_slices(_with_model(question))
    given = [thing for thing in question.things if isinstance(thing, TrainReport | ServeReport)]
    if given:
        return _of_answers(question, given)
    plans = [_read_plan(thing) for thing in question.things] or [Contender()]
    serving = _serves(question, plans)
    places = _several(question.on)
    programs = _programs(question.engine if serving else question.stack)
    if not serving and not any(is_plan_path(plan.plan) for plan in plans):
        _check_training(question)
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


def _check_training(question: CompareQuestion) -> None:
    """Refuse a comparison of which nothing says whether it is of training or of serving, with both commands."""
    if written(question.batch) and written(question.seq):
        return
    if written(question.method):  # fine-tuning has a usual batch and sequence
        return
    plans = [shlex.quote(written(thing)) for thing in question.things]
    model = shlex.quote(written(question.model) or "llama3-8b")
    on = written_slices(question.on) or "h100:8"
    start = f"dscale compare {' '.join((model, *plans))} --on {on}"
    raise InputError(
        f"A comparison of training needs --batch and --seq, one of serving --prompt or --output: "
        f"`{start} --batch 4M --seq 8192`, or `{start} --prompt 2048 --output 512`."
    )


def written_slices(on: Any) -> str:
    """Chips and slices as they would be typed."""
    return ",".join(written(thing) for thing in _several(on))


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


def _with_slices(question: CompareQuestion) -> CompareQuestion:
    """The question with slices that stand where plans do taken as --on, where nothing else does."""
    names = [thing for thing in question.things if isinstance(thing, str) and is_chip(thing.partition(":")[0])]
    if not names or written(question.on) or len(names) < len(question.things):
        return question
    return replace(question, on=",".join(names), things=())


def _of_answers(question: CompareQuestion, given: list[Any]) -> CompareAsked:
    """Answers that are there already."""
    if len(given) != len(question.things):
        raise InputError("Answers are compared with answers: ask for the others first, with ds.train or ds.serve.")
    if len({type(one) for one in given}) > 1:
        raise InputError("A training answer and a serving answer have no step in common; compare answers of one kind.")
    serving = isinstance(given[0], ServeReport)
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
    files = [Path(one.plan) for one in plans if str(one.plan).endswith(".toml")]
    saved = [not _SERVING.isdisjoint(read_table(path, "Plan file")) for path in files]
    if any((question.seq, question.tokens, question.stack, question.numerics)) and (asked or any(saved)):
        ours = "--seq, --tokens, --stack and --numerics are of training"
        raise InputError(f"{ours}, --prompt, --output and --engine of serving.")
    if len(set(saved)) > 1:
        raise InputError("One plan file is of training and another of serving; compare plans of one kind.")
    return asked or any(saved)


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


# The answer to `dscale compare`: each side asked as `train` or `serve` would be, then held against the first.


class _OneSide(Listener):
    """Hears what one side says: a note that others say too is passed on once, and progress is counted by sides."""

    def __init__(self, outer: Listener) -> None:
        super().__init__()
        self.outer = outer

    def note(self, text: str) -> None:
        # a price that names several chips is whole over all sides
        if text not in self.outer.notes and not isinstance(text, StrangePrice):
            self.outer.note(text)


def ask(question: CompareQuestion, listener: Listener) -> CompareReport:
    """Read a question, ask each side, compare them."""
    asked = read_question(question)
    answers = asked.given or _answers(asked, listener)
    return compared(answers, asked.serving).came_from(asked, listener.notes)


def _answers(asked: CompareAsked, listener: Listener) -> list[Any]:
    """The answer of each side; what nobody says of a plan that is written out is as the first file has it."""
    quiet, found = _OneSide(listener), []
    files = [side.plan for side in asked.candidates if is_plan_path(side.plan)]
    job = {} if not files else served_by(files[0]) if asked.serving else said_by(load_training_file(files[0]))
    one = _serve if asked.serving else _train
    for number, side in enumerate(asked.candidates):
        found.append(one(asked.question, side, {} if is_plan_path(side.plan) else job, quiet))
        listener.step(number + 1, len(asked.candidates))
    return found


def served_by(path: str) -> dict[str, Any]:
    """What a file says of the requests of its plan, by the names of flags."""
    saved = load_serving_plan(path)
    words = {"model": saved.model, "on": saved.slice, "engine": saved.engine}
    lengths = {name: value for name, value in saved_words(saved).items() if name in ("prompt", "output")}
    return {name: value for name, value in words.items() if value} | lengths


def _given(question: CompareQuestion, names: tuple[str, ...], one: Contender, software: str) -> dict[str, Any]:
    """The flags of one side that say something."""
    words = {name: getattr(question, name) for name in ("model", "batch", "price", "dtype", "profile", *names)}
    words |= {"on": one.on, software: one.software, "plan": one.plan}
    return {name: value for name, value in words.items() if value not in ("", None)}


def _train(question: CompareQuestion, one: Contender, job: dict[str, Any], listener: Listener) -> Any:
    given = _given(question, ("seq", "tokens", "numerics", *FIELDS), one, "stack")
    whole = job | given | {"measured": one.measured, "alone": bool(one.plan)}
    return ask_train(TrainQuestion(**whole, top=1), listener)


def _serve(question: CompareQuestion, one: Contender, job: dict[str, Any], listener: Listener) -> Any:
    given = _given(question, ("prompt", "output", "ttft", "tpot"), one, "engine")
    own = served_by(one.plan) if is_plan_path(one.plan) else job
    whole = job | given | {"model": given.get("model", own.get("model", ""))}
    if not whole["model"]:
        raise InputError("The comparison lacks a model; give --model, such as llama3-70b.")
    asked = read_serving(ServeQuestion(**whole, top=1))
    for text in asked.notes:
        listener.note(text)
    return answer(asked)


def compared(answers: list[Any], serving: bool) -> CompareReport:
    """The report on answers of one kind: the first plan of each, or all plans of a single one."""
    made = serving_side if serving else training_side
    first = answers[0]
    if len(answers) == 1:
        sides = [made(first, place) for place in range(len(first.configs if serving else first.plans))]
    else:
        sides = [made(one) for one in answers]
    sides, kind = keyed(sides), "serving" if serving else "training"
    models, work = " and ".join(dict.fromkeys(one.model for one in answers)), _workload(first, serving)
    differences = [difference(sides[0], side, kind) for side in sides[1:]]
    report = CompareReport(kind, models, work, sides, differences, _winner(sides, kind), [])
    works = {_workload(one, serving) for one in answers}
    report.notes += ["The sides are asked about different work."] if len(works) > 1 else []
    if any(side.terms and not side.feasible for side in sides):
        report.notes.append("Times of what cannot run are as if it could.")
    report.notes += [*_measured(sides), *_heads(sides), *(_slow_ends(answers, sides) if serving else [])]
    report.overtakes = [*_by_price(sides), *([] if serving or len(answers) != 2 else _by_hardware(answers, sides))]
    return report


HEAD, UNEVEN = "head matmuls", "uneven stages"


def _heads(sides: list[Side]) -> list[str]:
    """Whose matmuls of the head are within another term: the other stages of a pipeline wait for the one that has
    them."""
    terms = {side.key: {term.name for term in side.terms if term.exposed_s} for side in sides}
    within = [key for key, names in terms.items() if UNEVEN in names and HEAD not in names]
    if not within or not any(HEAD in names for names in terms.values()):
        return []
    return [f"The {HEAD} of {' and '.join(within)} are in its {UNEVEN}: the others wait for the stage that has them."]


def next_command(report: CompareReport) -> str:
    """The whole answer for the fastest side of a comparison of training."""
    asked, best = report.asked, report.best
    if asked is None or best is None or asked.serving or len(asked.candidates) != len(report.sides):
        return ""
    question, side = asked.question, asked.candidates[report.sides.index(best)]
    words = {"batch": question.batch, "seq": question.seq, "tokens": question.tokens, "stack": best.software}
    words |= {name: getattr(question, name) for name in ("method", "lora_rank", "frozen", "dtype")}
    if not (question.batch and question.seq) or unnamed(question.model, side.on):
        return ""
    plan = f' --plan "{best.plan}"' if written(side.plan) else ""
    told = "".join(f" --{name.replace('_', '-')} {shlex.quote(str(word))}" for name, word in words.items() if word)
    return f"dscale train {shlex.quote(written(question.model))} --on {written(side.on)}{plan}{told}"


def _sheet(report: CompareReport, detail: bool) -> Sheet:
    sheet, command = compare_sheet(report, detail), next_command(report)
    return Sheet((*sheet.blocks, NextStep(command, "Next:"))) if command else sheet


def _by_price(sides: list[Side]) -> list[str]:
    """At what price each side of another chip would be the cheapest."""
    priced = [side for side in sides if side.feasible and side.figure(DOLLARS)]
    if not priced:
        return []
    best = min(priced, key=lambda side: _value(side, DOLLARS))
    said = []
    for side in sides:
        name, each = side.slice.partition(":")[0], _value(side, TOKENS)
        if side.feasible and each and name != best.slice.partition(":")[0]:
            price = _value(side, DOLLARS) * each * 3600 / 1e6 or None
            said.append(price_where(f"{side.key} ({name})", best.key, _value(best, DOLLARS), each, price))
    return said


def _by_hardware(answers: list[Any], sides: list[Side]) -> list[str]:
    """At what bandwidths, rates and batches the slower of two sides overtakes the other."""
    if not all(one.plans and one.asked is not None for one in answers):
        return []
    one, other = ((one.asked.job.on_slice(chosen_slice(one.asked, one)), one.plans[0].plan) for one in answers)
    return overtaking(one, other, (sides[0].key, sides[1].key))


def _slow_ends(answers: list[Any], sides: list[Side]) -> list[str]:
    """What `serve` counts chips at on which no such run was measured."""
    rows = answers[0].configs if len(answers) == 1 else [next(iter(one.configs), None) for one in answers]
    return [
        f"No such run was measured on the chips of {side.key}: `serve` ranks it at the slow end of its band, "
        f"${one.ranked_usd_per_mtok:,.2f} per million tokens."
        for side, one in zip(sides, rows, strict=True)
        if one is not None and one.counted < 1 and one.ranked_usd_per_mtok
    ]


def _measured(sides: list[Side]) -> list[str]:
    """Measured steps against each other, beside what was expected of them."""
    known = [(side, side.measured_s) for side in sides if side.measured_s]
    said = []
    for side, seconds in known[1:]:
        first, own = known[0]
        expected = seconds_of(side) / seconds_of(first)
        said.append(
            f"Measured, the step of {side.key} is {seconds / own:.2f}x that of {first.key}; {expected:.2f}x was "
            "expected."
        )
    return said


def _workload(answer: Any, serving: bool) -> str:
    work = answer.workload
    if serving:
        return f"prompts of {work.prompt:,} tokens, {work.output:,} output tokens"
    return f"{work.batch_tokens:,} tokens a step ({work.sequences:,} sequences of {work.seq:,})"


def _winner(sides: list[Side], kind: str) -> str:
    """The fastest side for its tokens; of serving the cheapest, or where prices lack, the one with most of a chip."""
    able = [side for side in sides if side.feasible]
    if not able:
        return ""
    if kind == "training":
        return min(able, key=lambda side: seconds_of(side) / side.tokens).key
    priced = all(side.figure(DOLLARS) for side in able)
    meets = [side for side in able if not side.problems] or able
    if priced:
        return min(meets, key=lambda side: _value(side, DOLLARS)).key
    return max(meets, key=lambda side: _value(side, TOKENS)).key


def _value(side: Side, name: str) -> float:
    found = side.figure(name)
    return 0.0 if found is None or found.value is None else found.value


bind(CompareReport, Face(_sheet, draw))
