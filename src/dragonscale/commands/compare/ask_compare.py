"""`dscale compare` asked: every combination of plans, slices and software that is to be looked at, each asked as
`train` or `serve` would be, then held against the first."""

import re
import shlex
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from dragonscale.blocks.sheet import NextStep, Sheet, several
from dragonscale.commands.compare.compare_blocks import compare_blocks
from dragonscale.commands.compare.compare_charts import draw
from dragonscale.commands.compare.compare_records import CompareReport, Side
from dragonscale.commands.compare.sides import (
    DOLLARS,
    SERVED,
    SLOWEST,
    TOKENS,
    difference,
    keyed,
    seconds_of,
    served_figures,
    serving_side,
    training_side,
)
from dragonscale.commands.given import comma_list, unnamed
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import CompareQuestion, TrainQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.serve.answer import answer as answer_serving
from dragonscale.commands.serve.engines import programs_of
from dragonscale.commands.serve.measured import loaded_runs
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
from dragonscale.training.advice.crossing import Choice
from dragonscale.training.advice.overtaking import conditions, overtaking, price_where
from dragonscale.training.plan.plan_file import given_settings, is_plan_path, load_training_file
from dragonscale.training.plan.tuning import FIELDS

BEST = "best"
# Part by which sides may differ in what they serve of a load and count as alike.
SAME_LOAD = 0.02
# Sides that are still read side by side.
MAX_SIDES = 12
ADAPTER_FLAGS = ("lora_rank", "lora_targets", "frozen")
# Entries of a plan file that only a serving plan has.
_SERVING = {"engine", "traffic", "targets", "launch", "speculation", "prefill", "replicas"}
# Flags of serving that every side has alike, beside targets and the load.
_SERVED = ("prompt", "output", "kv_dtype", "max_seqs", "memory_fraction")
# Settings that plans of training and of serving both have.
_OF_BOTH = frozenset({"tensor", "pipe", "expert", "data", "context"})
_MEASURED = re.compile(r"(?P<plan>.*\S)\s*=\s*(?P<time>[\d.]+\s*(?:ms|s|min))")


@dataclass(frozen=True)
class Contender:
    """A plan (empty: the best one) on a slice with a software; and the step that was measured of it."""

    plan: Any = ""
    on: Any = ""
    software: str = ""
    measured: str = ""
    method: str = ""


@dataclass(frozen=True)
class CompareAsked:
    """What to look at: candidates to be asked, or answers that were there already."""

    question: CompareQuestion
    serving: bool
    candidates: list[Contender] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_question(question: CompareQuestion) -> CompareAsked:
    """Check what was given; what cannot be compared is refused in one sentence."""
    question = _with_slices(_with_model(question))
    answers = [thing for thing in question.things if isinstance(thing, TrainReport | ServeReport)]
    if answers:
        return _of_answers(question, answers)
    plans = list(map(_read_plan, question.things)) or [Contender()]
    serving = _serves(question, plans)
    notes: list[str] = []
    if not serving and not _trains(question, plans):
        serving = True
        notes = ["Compared for serving; --batch 4M --seq 8192 compares training."]
    places = _several(question.on)
    programs = programs_of(question.engine if serving else question.stack)
    methods = [""] if serving else comma_list(question.method) or [""]
    candidates: list[Contender] = []
    for plan, on, software, method in product(plans, places, programs, methods):
        candidates.append(replace(plan, on=on, software=software, method=method))
    if question.measured.strip():
        candidates[0] = replace(candidates[0], measured=question.measured.strip())
    if not 2 <= len(candidates) <= MAX_SIDES:
        raise InputError(
            f"A comparison has 2 to {MAX_SIDES} sides and this has {len(candidates)}; give several plans "
            '("tp8 pp4 dp16" best), several slices (--on h100:512,v5p:8x8x8) or several of --stack, --engine, --method.'
        )
    # a plan file may name its model
    if not written(question.model) and not any(str(plan.plan).endswith(".toml") for plan in plans):
        raise InputError("The comparison lacks a model; give --model, such as llama3-70b.")
    if serving and any(candidate.measured for candidate in candidates):
        raise InputError("A measured time is that of a training step; leave it out, or --prompt and --output.")
    return CompareAsked(question, serving, candidates, notes=notes)


def _trains(question: CompareQuestion, plans: list[Contender]) -> bool:
    """Whether a comparison without lengths of requests is of training: a flag or a plan says something that only
    training has."""
    flags = (question.batch, question.seq, question.tokens, question.stack, question.numerics, question.measured)
    if any(map(written, (*flags, question.method, question.teacher))) or question.lora_rank is not None:
        return True
    for plan in plans:
        text = written(plan.plan)
        try:
            settings = given_settings(text) if text and not is_plan_path(text) else frozenset()
        except InputError:  # a plan of serving, or one that is refused where it is read
            settings = frozenset()
        if plan.measured or is_plan_path(text) or not settings <= _OF_BOTH:
            return True
    return False


def written_slices(on: Any) -> str:
    """Chips and slices as they would be typed."""
    return ",".join(map(written, _several(on)))


def _with_model(question: CompareQuestion) -> CompareQuestion:
    """The question with a model's name that stands before the plans taken as its model, as `train` takes it."""
    if not question.things:
        return question
    first = question.things[0]
    if not isinstance(first, str) or not _names_model(first.strip()):
        return question
    if written(question.model):
        raise InputError(
            f"{shorten(first)} is a model and --model is {shorten(written(question.model))}; give one of them."
        )
    return replace(question, model=first.strip(), things=tuple(question.things[1:]))


def _names_model(text: str) -> bool:
    """Whether a word is a model and no plan: a preset, an org/name of the Hub, a config or a checkpoint.

    >>> [_names_model(text) for text in ("llama3-8b", "Qwen/Qwen3-8B", "my/config.json", "bert-10b")]
    [True, True, True, True]
    >>> [_names_model(text) for text in ("tp8 pp4", "tp8", "plans/a.toml", "best", "h100:8")]
    [False, False, False, False, False]
    """
    if is_preset(text) or text.endswith((".json", ".gguf")):
        return True
    if is_plan_path(text) or set(text) & {" ", "="} or text.lower() == BEST or is_chip(text.partition(":")[0]):
        return False
    try:
        given_settings(text)
    except InputError:  # no plan, so a model, which is refused by name where there is none
        return True
    return False


def _with_slices(question: CompareQuestion) -> CompareQuestion:
    """The question with slices that stand where plans do taken as --on, where nothing else does."""
    # `dscale compare h100:8 v5e:8` has slices where plans stand
    if not question.things or written(question.on):
        return question
    for thing in question.things:
        if not isinstance(thing, str) or not is_chip(thing.partition(":")[0]):
            return question
    return replace(question, on=",".join(question.things), things=())


def _of_answers(question: CompareQuestion, answers: list[Any]) -> CompareAsked:
    """Answers that are there already."""
    if len(answers) != len(question.things):
        raise InputError("Answers are compared with answers: ask for the others first, with ds.train or ds.serve.")
    if len(set(map(type, answers))) > 1:
        raise InputError("A training answer and a serving answer have no step in common; compare answers of one kind.")
    serving = isinstance(answers[0], ServeReport)
    if len(answers) == 1 and len(_rows(answers[0])) < 2:
        raise InputError("One answer with one plan has nothing to be compared with; give another.")
    return CompareAsked(question, serving, answers=answers)


def _rows(answer: Any) -> list[Any]:
    """The configurations of a serving answer or the plans of a training answer, the best first."""
    if isinstance(answer, ServeReport):
        return answer.configs
    return answer.plans


def _read_plan(thing: Any) -> Contender:
    """A plan as it was written, with the step that was measured of it.

    >>> _read_plan("tp8 pp4=8.2s")
    Contender(plan='tp8 pp4', on='', software='', measured='8.2s', method='')
    >>> _read_plan("tp=8,pp=4").plan, _read_plan("Best").plan
    ('tp=8,pp=4', '')
    """
    if isinstance(thing, Record):
        raise InputError(f"{type(thing).__name__} has no plans to compare; give answers of ds.train or ds.serve.")
    text = written(thing).strip()
    if not text:
        raise InputError('A plan is empty; write one such as "tp8 pp4 dp16", or best.')
    match = _MEASURED.fullmatch(text)
    if match and match["plan"].lower() == BEST:
        raise InputError("What was measured was a plan; write it instead of 'best'.")
    if match:
        return Contender(match["plan"], measured=match["time"])
    if text.lower() == BEST:
        return Contender()
    return Contender(text)


def _serves(question: CompareQuestion, plans: list[Contender]) -> bool:
    """Whether it is about serving: its lengths or engines are given, or a plan file is one of serving."""
    serving_flags = any(getattr(question, name) for name in (*_SERVED, "engine", "ttft", "tpot", "rate", "requests"))
    # of each plan file: whether it has entries that only a serving plan has
    saved: list[bool] = []
    for plan in plans:
        if str(plan.plan).endswith(".toml"):
            saved.append(not _SERVING.isdisjoint(read_table(Path(plan.plan), "Plan file")))
    if any((question.seq, question.tokens, question.stack, question.numerics)) and (serving_flags or any(saved)):
        raise InputError(
            "--seq, --tokens, --stack and --numerics are of training, --prompt, --output and --engine of serving."
        )
    if len(set(saved)) > 1:
        raise InputError("One plan file is of training and another of serving; compare plans of one kind.")
    return serving_flags or any(saved)


def _several(things: Any) -> list[Any]:
    """Slices as they were given, with commas or in a list."""
    if isinstance(things, list | tuple):
        return list(things)
    if not isinstance(things, str):
        return [things]
    return comma_list(things) or [""]


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
    comparison = read_question(question)
    for note in comparison.notes:
        listener.note(note)
    answers = comparison.answers or _answers(comparison, listener)
    return compared(answers, comparison.serving).came_from(comparison, listener.notes)


def _answers(comparison: CompareAsked, listener: Listener) -> list[Any]:
    """The answer of each side; what nobody says of a plan that is written out is as the first file has it."""
    candidates, quiet = comparison.candidates, _OneSide(listener)
    path = next((side.plan for side in candidates if is_plan_path(side.plan)), None)
    ask_side, job = _train, dict[str, Any]()
    if comparison.serving:
        ask_side = _serve
    if path and comparison.serving:
        job = served_by(path)
    elif path:
        job = said_by(load_training_file(path))
    answers: list[Any] = []
    for side in candidates:
        # a plan file says its own job
        answers.append(ask_side(comparison.question, side, {} if is_plan_path(side.plan) else job, quiet))
        listener.step(len(answers), len(candidates))
    if comparison.serving or path:
        return answers
    return _on_one_stack(comparison, answers, listener)


def _on_one_stack(comparison: CompareAsked, answers: list[Any], listener: Listener) -> list[Any]:
    """The answers for plans on one slice with the same stack for all of them, where none was named, each was taken with
    another, and one of these runs all: what differs is then the plans, not the software."""
    question, candidates = comparison.question, comparison.candidates
    stacks = list(dict.fromkeys(answer.workload.stack for answer in answers))
    slices = {answer.slice for answer in answers}
    if written(question.stack) or len(stacks) < 2 or len(slices) > 1 or not all(side.plan for side in candidates):
        return answers
    for stack in stacks:
        same = [_train(question, replace(side, software=stack), {}, _Unheard()) for side in candidates]
        if all(answer.plans and not answer.plans[0].illegal for answer in same):
            listener.note(f"All sides are judged with {stack}, which runs each of them; --stack names another.")
            return same
    return answers


class _Unheard(Listener):
    """Hears nothing: the notes were passed on when the sides were first asked."""

    def note(self, text: str) -> None:
        """Drop it."""


def served_by(path: str) -> dict[str, Any]:
    """What a file says of the requests of its plan, by the names of flags."""
    saved = load_serving_plan(path)
    flags = {"model": saved.model, "on": saved.slice, "engine": saved.engine}
    lengths = {name: value for name, value in saved_words(saved).items() if name in ("prompt", "output")}
    return {name: value for name, value in flags.items() if value} | lengths


def _flags(question: CompareQuestion, names: tuple[str, ...], side: Contender, software: str) -> dict[str, Any]:
    """The flags of one side that say something."""
    flags = {name: getattr(question, name) for name in ("model", "batch", "price", "dtype", "profile", *names)}
    flags |= {"on": side.on, software: side.software, "plan": side.plan}
    return {name: value for name, value in flags.items() if value not in ("", None)}


def _train(question: CompareQuestion, side: Contender, job: dict[str, Any], listener: Listener) -> Any:
    flags = _flags(question, ("seq", "tokens", "numerics", *FIELDS), side, "stack")
    whole = job | flags | {"measured": side.measured, "alone": bool(side.plan)}
    if side.method:
        whole["method"] = side.method
    if side.method == "full":  # a rank and a format of frozen weights are of the sides that have adapters
        whole = {name: value for name, value in whole.items() if name not in ADAPTER_FLAGS}
    report = ask_train(TrainQuestion(**whole, top=1), listener)
    if report.plans or not side.method or "," in written(side.on):
        return report
    # nothing fits: what the usual plan needs, part by part
    usual = whole | {"plan": "z0", "alone": True}
    return ask_train(TrainQuestion(**usual, top=1), Listener())


def _serve(question: CompareQuestion, side: Contender, job: dict[str, Any], listener: Listener) -> Any:
    flags = _flags(question, (*_SERVED, "ttft", "tpot"), side, "engine")
    saved = served_by(side.plan) if is_plan_path(side.plan) else job
    whole = job | flags | {"model": flags.get("model", saved.get("model", ""))}
    if not whole["model"]:
        raise InputError("The comparison lacks a model; give --model, such as llama3-70b.")
    understood = read_serving(ServeQuestion(**whole, top=1))
    for text in understood.notes:
        listener.note(text)
    answer = answer_serving(understood)
    if question.rate.strip() or question.requests:
        answer.counted_runs = loaded_runs(understood, answer, question.rate, question.requests)
    return answer


def compared(answers: list[Any], serving: bool) -> CompareReport:
    """The report on answers of one kind: the first plan of each, or all plans of a single one."""
    kind, side_of = "training", training_side
    if serving:
        kind, side_of = "serving", serving_side
    first = answers[0]
    if len(answers) == 1:
        sides = [side_of(first, index) for index in range(len(_rows(first)))]
    else:
        sides = list(map(side_of, answers))
    sides = keyed(sides)
    work = _workload(first, serving)
    report = CompareReport(
        kind=kind,
        model=" and ".join(dict.fromkeys(answer.model for answer in answers)),
        workload=work,
        sides=sides,
        differences=[difference(sides[0], side, kind) for side in sides[1:]],
        winner=_winner(sides, kind),
        notes=[],
    )
    if any(_workload(answer, serving) != work for answer in answers):
        report.notes.append("The sides are asked about different work.")
    if any(side.terms and not side.feasible for side in sides):
        report.notes.append("Times of what cannot run are as if it could.")
    report.notes += [*_measured(sides), *_heads(sides)]
    report.memories = _memories(answers, sides)
    report.overtakes += _by_price(sides)
    if serving:
        report.notes += _slow_ends(answers, sides)
    elif len(answers) == 2:
        report.overtakes += _by_hardware(answers, sides)
        report.differences[0].text += _by_conditions(answers, sides)
    return report


def _memories(answers: list[Any], sides: list[Side]) -> list[str]:
    """How much less memory each side of fine-tuning takes than the one that takes most, and what rules both."""
    if len(answers) < 2 or not all(isinstance(answer, TrainReport) for answer in answers):
        return []
    if not any(answer.asked is not None and answer.asked.job.tuning.tunes for answer in answers):
        return []
    heaviest = max(sides, key=lambda side: side.hbm_bytes)
    sentences = [f"Memory of {side.key} ({side.label}): {_parts(side)}." for side in sides if side.memory]
    for side in sides:
        if side is heaviest or not side.memory:
            continue
        saved = 1 - side.hbm_bytes / heaviest.hbm_bytes
        largest = max(side.memory, key=lambda part: part.bytes)
        share = largest.bytes / side.hbm_bytes
        sentences.append(
            f"{side.key} takes {saved:.0%} less memory than {heaviest.key}; {share:.0%} of it is {largest.name}."
        )
    return sentences


def _parts(side: Side) -> str:
    """The parts of a side's memory of at least a hundredth, the largest first."""
    parts = sorted(side.memory, key=lambda part: -part.bytes)
    named = [f"{part.name} {part.bytes / 1e9:.2f} GB" for part in parts if part.bytes >= side.hbm_bytes / 100]
    return f"{side.hbm_bytes / 1e9:.1f} GB, of it {', '.join(named)}"


# Terms of a training step: the matmuls of the output head, and the wait of other pipeline stages for the longest.
HEAD = "head matmuls"
UNEVEN = "uneven stages"


def _heads(sides: list[Side]) -> list[str]:
    """Whose matmuls of the head are within another term: the other stages of a pipeline wait for the one that has
    them."""
    within: list[str] = []
    for side in sides:
        if not side.exposed.get(HEAD) and side.exposed.get(UNEVEN):
            within.append(side.key)
    if not within or not any(side.exposed.get(HEAD) for side in sides):
        return []
    return [f"The {HEAD} of {' and '.join(within)} are in its {UNEVEN}: the others wait for the stage that has them."]


def next_command(report: CompareReport) -> str:
    """The whole answer for the fastest side of a comparison of training."""
    comparison, best = report.asked, report.best
    if comparison is None or best is None or comparison.serving or len(comparison.candidates) != len(report.sides):
        return ""
    question, side = comparison.question, comparison.candidates[report.sides.index(best)]
    if not (question.batch and question.seq) or unnamed(question.model, side.on):
        return ""
    command = f"dscale train {shlex.quote(written(question.model))} --on {written(side.on)}"
    if written(side.plan):
        command += f' --plan "{best.plan}"'
    flags = {"batch": question.batch, "seq": question.seq, "tokens": question.tokens, "stack": best.software}
    flags |= {name: getattr(question, name) for name in ("lora_rank", "frozen", "dtype")}
    flags["method"] = side.method or question.method
    for name, value in flags.items():
        if value:
            command += f" --{name.replace('_', '-')} {shlex.quote(str(value))}"
    return command


def _blocks(report: CompareReport, detail: bool) -> Sheet:
    sheet, command = compare_blocks(report, detail), next_command(report)
    if not command:
        return sheet
    why = "Next:" if detail else "More with --explain. Next:"
    return Sheet((*sheet.blocks, NextStep(command, why)))


def _by_price(sides: list[Side]) -> list[str]:
    """At what price each side of another chip would be the cheapest."""
    priced = [side for side in sides if side.feasible and side.figure(DOLLARS)]
    if not priced:
        return []
    best = min(priced, key=lambda side: side.value(DOLLARS))
    best_chip = best.slice.partition(":")[0]
    sentences: list[str] = []
    for side in sides:
        chip, tokens_per_s = side.slice.partition(":")[0], side.value(TOKENS)
        if side.feasible and tokens_per_s and chip != best_chip:
            # dollars for a million tokens, times the millions of tokens of an hour: what an hour of the chip costs
            usd_per_h = side.value(DOLLARS) * tokens_per_s * 3600 / 1e6 or None
            name = f"{side.key} ({chip})"
            sentences.append(price_where(name, best.key, best.value(DOLLARS), tokens_per_s, usd_per_h))
    return sentences


def _by_conditions(answers: list[Any], sides: list[Side]) -> str:
    """How the order of two plans changes with overlap and links, to follow the sentence on their difference."""
    if not all(side.feasible for side in sides) or any(answer.asked is None for answer in answers):
        return ""
    choices: list[Choice] = []
    for answer in answers:
        choices.append((answer.asked.job.on_slice(chosen_slice(answer.asked, answer)), answer.plans[0].plan))
    return "".join(f" {sentence}" for sentence in conditions(choices[0], choices[1], (sides[0].key, sides[1].key)))


def _by_hardware(answers: list[Any], sides: list[Side]) -> list[str]:
    """At what bandwidths, rates and batches the slower of two sides overtakes the other."""
    choices: list[Choice] = []
    for answer in answers:
        if not answer.plans or answer.asked is None:
            return []
        choices.append((answer.asked.job.on_slice(chosen_slice(answer.asked, answer)), answer.plans[0].plan))
    return overtaking(choices[0], choices[1], (sides[0].key, sides[1].key))


def _slow_ends(answers: list[Any], sides: list[Side]) -> list[str]:
    """Notes on chips that `serve` ranks at the slow end of their band, because no such run was measured on them."""
    rows: list[Any] = answers[0].configs
    if len(answers) > 1:  # the best of each, where any fits
        rows = [next(iter(answer.configs), None) for answer in answers]
    sentences: list[str] = []
    for side, row in zip(sides, rows, strict=True):
        if row is not None and row.counted < 1 and row.ranked_usd_per_mtok:
            sentences.append(
                f"No such run was measured on the chips of {side.key}: `serve` ranks it at the slow end of its band, "
                f"${row.ranked_usd_per_mtok:,.2f} per million tokens."
            )
    return sentences


def _measured(sides: list[Side]) -> list[str]:
    """Measured steps against each other, beside what was expected of them."""
    sentences: list[str] = []
    first, first_s = None, 0.0
    for side in sides:
        if not side.measured_s:
            continue
        if first is None:  # the others are held against it
            first, first_s = side, side.measured_s
            continue
        expected = seconds_of(side) / seconds_of(first)
        ratio = f"{side.measured_s / first_s:.2f}x that of {first.key}; {expected:.2f}x was expected"
        sentences.append(f"Measured, the step of {side.key} is {ratio}.")
    return sentences


def _workload(answer: Any, serving: bool) -> str:
    work = answer.workload
    if serving:
        return f"prompts of {work.prompt:,} tokens, {work.output:,} output tokens"
    return f"{work.batch_tokens:,} tokens a step ({several(work.sequences, 'sequence')} of {work.seq:,})"


def _winner(sides: list[Side], kind: str) -> str:
    """The fastest side for its tokens; of serving the cheapest that misses no target, or without prices the one with
    most tokens per chip."""
    able = [side for side in sides if side.feasible]
    if not able:
        return ""
    if kind == "training":
        return min(able, key=lambda side: seconds_of(side) / side.tokens).key
    loaded = [name for side in able for name in served_figures(side)]
    if loaded:
        return _winner_under_load(able, loaded[0]).key
    meeting = [side for side in able if not side.problems] or able
    if all(side.figure(DOLLARS) for side in able):
        return min(meeting, key=lambda side: side.value(DOLLARS)).key
    return max(meeting, key=lambda side: side.value(TOKENS)).key


def _winner_under_load(sides: list[Side], served: str) -> Side:
    """The side that serves most of the load; of those that serve as much the one whose requests end soonest."""
    most_served = max(side.value(served) for side in sides)
    candidates = [side for side in sides if side.value(served) >= (1 - SAME_LOAD) * most_served]
    slowest = served.removesuffix(SERVED) + SLOWEST
    return min(candidates, key=lambda side: side.value(slowest))


bind(CompareReport, Face(_blocks, draw))
