"""Advice that answers and errors give, followed: every command that is printed, every change that is said to help.

    python -m tools.try_advice --answers 200 --errors 60 --seed 1

draws command lines (`tools/try_advice.toml` has what they are made of), answers them in this process, and then does
what each answer says: commands under "Next", changes that "would help", what fits where the question does not, the
nearest batch or slice, the replicas that would hold a rate. A change is applied by the flags that the answer's record
has beside its words. Of each error the suggestion is typed in place of what was wrong. What fails, does not fit, misses
its targets or improves by another amount than was said (more than `APART`) is a failure: a row of the table that is
printed, and exit code 1.
"""

import argparse
import contextlib
import io
import random
import re
import shlex
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale.blocks.sheet import NextStep, Prose
from dragonscale.commands.advised import MEETS, TOKENS, Advice
from dragonscale.commands.rl.rl_records import RlReport
from dragonscale.commands.serve.answer import answer as answer_serving
from dragonscale.commands.serve.serve_question import read_question as read_serving
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.serve.variant_records import RungRow
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.commands.train.train_records import TrainReport
from dragonscale.errors import REFUSED, sentence_of
from dragonscale.faces.cli import app
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.listener import Listener
from dragonscale.training.plan.plan import short_plan

SOURCES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
APART = 0.015
"""How far a gain may be from what was said of it: half a per cent is lost in print already."""
SAME_STEP = 0.01
"""How far a step may be from the one that was said, over it: three digits are printed."""
REFUSED_CODE, INFEASIBLE_CODE = 2, 3
_COMMAND = re.compile(r"(?<!is read as )`(dscale [^`]+)`")
"""A command that is said to work; what a name is read as is only the beginning of one."""
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|…")
"""A command with a word in capitals is a form to fill in."""
_GUESS = re.compile(r"did you mean '?([^'?\s][^'?]*?)'?\?")
_HERE = re.compile(r"here it is (--[^.;]+(?:\.\d+)?)[.;]")
_SUCH_AS = re.compile(r"such as '([^']+)'|write e\.g\. '?([^\s';,]+?)'?[.,;]|give its value, such as (\S+=\S+?)\.")


@dataclass(frozen=True)
class Trial:
    """A piece of advice that was followed: where it came from, what was done, and what is wrong (empty: nothing)."""

    line: str
    advice: str
    fault: str = ""


@dataclass(frozen=True)
class Mistake:
    """A line with one thing wrong in it, and that word; of a far one nothing may be suggested. One that is answered all
    the same, as a flag of other software is, has what the answer must say of how it was read (`taken`)."""

    line: str
    wrong: str
    far: bool = False
    taken: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a command line gave."""

    code: int
    text: str


# What is drawn.


def draw_lines(count: int, seed: int) -> list[str]:
    """Command lines, each of a form of `try_advice.toml` with its parts drawn.

    >>> draw_lines(2, 1) == draw_lines(2, 1), len(set(draw_lines(20, 1)))
    (True, 20)
    """
    dice, lines = random.Random(seed), list[str]()
    forms = SOURCES["answers"]
    kinds, weights = zip(*((kind, form["weight"]) for kind, form in forms.items()), strict=True)
    while len(lines) < count:
        form = forms[dice.choices(kinds, weights)[0]]
        line = _filled(form["line"], dice)
        for flag in form.get("flags", ()):
            if dice.random() < form.get("share", 0.2):
                line += f" {_filled(flag, dice)}"
        if line not in lines:
            lines.append(line)
    return lines


def _filled(form: str, dice: random.Random) -> str:
    """A form whose {parts} are drawn."""
    return re.sub(r"\{(\w+)\}", lambda part: dice.choice(SOURCES["parts"][part[1]]), form)


def draw_mistakes(count: int, seed: int) -> list[Mistake]:
    """Mistakes of `try_advice.toml`; fewer than there are, drawn."""
    every = [Mistake(**row) for row in SOURCES["mistakes"]]
    return random.Random(seed).sample(every, min(count, len(every)))


# Answers, and what is done about them.


def run(line: str) -> Outcome:
    """What a command line prints, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = app.run(shlex.split(line)[1:])
    return Outcome(code, out.getvalue() + err.getvalue())


def asked(line: str) -> tuple[Any, Any]:
    """The command of a line and its question."""
    command, rest = app.find_command(shlex.split(line)[1:])
    assert command is not None, line
    given = read_arguments(command.fields(), rest, command.name).values
    names = {field.name for field in command.asked()}
    return command, command.question(**{name: value for name, value in given.items() if name in names})


def answered(command: Any, question: Any) -> Any:
    """The report, or the sentence that refuses the question."""
    try:
        return command.answer(question, Listener())
    except REFUSED as error:
        return sentence_of(error)


def try_answer(line: str) -> list[Trial]:
    """A line answered, and all its advice followed."""
    try:
        command, question = asked(line)
    except REFUSED as error:
        return [Trial(line, "", f"the drawn line is refused: {sentence_of(error)}")]
    report = answered(command, question)
    if isinstance(report, str):
        return list(_try_commands(line, report))
    trials = list(_try_next(line, report))
    for record, follow in FOLLOWED.items():
        if isinstance(report, record):
            trials += [Trial(line, *done) for done in follow(command, report, question)]
    return trials


def _try_next(line: str, report: Any) -> Iterator[Trial]:
    """The commands that an answer prints, run."""
    for block in report.sheet().blocks:
        if isinstance(block, NextStep) and block.text.startswith("dscale ") and not _PLACEHOLDER.search(block.text):
            outcome = run(block.text)
            yield Trial(line, block.text, "" if outcome.code == 0 else f"exit code {outcome.code}: {_end(outcome)}")
        elif isinstance(block, Prose):
            yield from _try_commands(line, block.text)


def _try_commands(line: str, text: str) -> Iterator[Trial]:
    """Commands in the text of a message, run."""
    for command in _COMMAND.findall(text):
        if not _PLACEHOLDER.search(command) and len(command.split()) > 2:
            outcome = run(command)
            fault = f"exit code {outcome.code}: {_end(outcome)}" if outcome.code == REFUSED_CODE else ""
            yield Trial(line, command, fault)


def _end(outcome: Outcome) -> str:
    return " ".join(outcome.text.split())[-300:]


Done = Iterator[tuple[str, str]]
"""Advice that was followed, and what is wrong with it."""


def _follow_training(command: Any, report: TrainReport, question: Any) -> Done:
    if report.plans and report.plans[0].feasible:
        yield from _follow_helps(command, report)
    for remedy in report.remedies:
        result = answered(command, replace(question, plan="", **remedy.flags))
        yield f"remedy {remedy.flags}", _fits(result, remedy.step_s)
    for near in report.neighbours:
        result = answered(command, replace(question, plan="", on=near.slice, batch=f"{near.sequences}seq"))
        yield f"neighbour {near.slice} {near.sequences}seq", _fits(result, near.step_s)
    if any("(--slack 0 takes it)" in note for note in report.notes):
        result = answered(command, replace(question, slack="0"))
        faster = not isinstance(result, str) and result.plans[0].step_s < report.plans[0].step_s
        yield "--slack 0", "" if faster else "takes nothing faster"
    for change in report.changes[:2]:
        result = answered(command, replace(question, plan=change.plan, alone=True, measured=""))
        if change.gain > 0 or not report.plans[0].feasible:
            yield f"{change.setting}={change.new}", _fits(result, change.step_s)


ALONE = {"fix": "", "remat": "", "rank": "time", "deadline": "", "largest": "", "measured": "", "scaling": False}
"""Flags of a search, which a plan by itself does not take."""


def _follow_helps(command: Any, report: TrainReport) -> Done:
    best = report.plans[0]
    plan = {"on": report.slice, "stack": best.stack, "plan": short_plan(best.plan), "alone": True}
    given = replace(report.asked.question, **{**ALONE, **plan, "batch": f"{report.workload.sequences}seq"})
    for one in best.helps:
        result = answered(command, replace(given, **one.flags))
        if isinstance(result, str):
            yield one.change, f"refused: {result}"
            continue
        after, tokens = result.plans[0], result.workload.batch_tokens
        gain = tokens / after.step_s / (report.workload.batch_tokens / best.step_s) - 1
        fault = "" if abs(gain - one.gain) <= APART else f"{one.gain:+.1%} said, {gain:+.1%} found"
        if not after.feasible and not one.needs:
            fault = f"cannot run: {after.problems}"
        yield f"{one.change} {one.gain:+.0%}", fault


def _fits(result: Any, step_s: float) -> str:
    """What is wrong with an answer whose best plan should take a step of so many seconds, or less."""
    if isinstance(result, str):
        return f"refused: {result}"
    if result.exit_code:
        return f"does not fit (exit code {result.exit_code})"
    found = result.plans[0].step_s
    slack = 1 + result.asked.job.slack + SAME_STEP  # a simpler plan may be so much slower
    return "" if found <= step_s * slack else f"a step of {step_s:.4g}s said, {found:.4g}s found"


FORMATS = ("weights", "compute", "kv_dtype", "attention", "dtype", "quantize")
"""Flags that a plan of serving says itself."""


def _follow_serving(command: Any, report: ServeReport, given: Any) -> Done:
    for rung in report.rungs:
        yield rung.text, _climbs(report, rung, answered(command, replace(given, **_typed(rung.flags))))
    for one in report.changes:
        question = given
        if one.flags.get("plan") or "quantize" in one.flags:
            question = replace(question, **dict.fromkeys(FORMATS, ""))
        changed = replace(question, **_typed(one.flags))
        if one.effect == TOKENS:
            yield one.text, _gains(report, one, changed)
            continue
        result = answered(command, changed)
        if isinstance(result, str):
            yield one.text, f"refused: {result}"
        elif one.effect == MEETS:
            yield one.text, "" if result.exit_code == 0 else f"exit code {result.exit_code}: {result.headline()}"
        else:
            yield one.text, "" if result.exit_code != INFEASIBLE_CODE else "does not fit"


NUMBERS: dict[str, Any] = {
    "max_seqs": int,
    "token_budget": int,
    "memory_fraction": float,
    "drafts": int,
    "disaggregate": lambda _: True,
}


def _climbs(report: ServeReport, rung: RungRow, result: Any) -> str:
    """What is wrong with an addition to the plain launch: it is refused, or gives another gain than was said."""
    if isinstance(result, str):
        return f"refused: {result}"
    if result.exit_code:
        return f"exit code {result.exit_code}: {result.headline()}"
    if rung.gain is None or result.disaggregation is not None:  # whose gain is against the pools' own chips
        return ""
    before, after = report.configs[0], result.configs[0]
    if before.cost_usd_per_mtok is None or after.cost_usd_per_mtok is None:
        gain = after.output_tokens_per_s_per_chip / before.output_tokens_per_s_per_chip - 1
    else:
        gain = before.cost_usd_per_mtok / after.cost_usd_per_mtok - 1
    return "" if abs(gain - rung.gain) <= APART else f"{rung.gain:+.1%} said, {gain:+.1%} found"


def _typed(flags: dict[str, str]) -> dict[str, Any]:
    """Flags as their fields hold them."""
    return {name: NUMBERS.get(name, str)(value) for name, value in flags.items()}


def _gains(report: ServeReport, one: Advice, question: Any) -> str:
    """What is wrong with more tokens of each chip, by the formulas that said so."""
    best = report.configs[0]
    before = replace(question, batch=str(best.batch), token_budget=report.asked.question.token_budget)
    before = replace(before, plan=best.plan)
    before = replace(before, max_seqs=report.asked.question.max_seqs)
    try:
        speeds = [
            answer_serving(read_serving(each), brief=True).configs[0].output_tokens_per_s_per_chip
            for each in (before, question)
        ]
    except REFUSED as error:
        return f"refused: {sentence_of(error)}"
    gain = speeds[1] / speeds[0] - 1
    assert one.gain is not None
    return "" if abs(gain - one.gain) <= APART else f"{one.gain:+.1%} said, {gain:+.1%} found"


def _follow_simulation(command: Any, report: SimulateReport, question: Any) -> Done:
    found = report.capacity
    if found is None or not found.change or found.replicas is None:
        return
    result = answered(command, replace(question, **found.change, max_rate=False))
    flags = " ".join(f"--{name} {value}" for name, value in found.change.items())
    if isinstance(result, str):
        yield flags, f"refused: {result}"
    else:
        yield flags, "" if result.exit_code == 0 else f"exit code {result.exit_code}"


def _follow_rl(command: Any, report: RlReport, question: Any) -> Done:
    best = report.best
    if report.fits_on:
        result = answered(command, replace(question, on=report.fits_on))
        yield report.fits_on, _works(result)
    for one in report.changes:
        if best is None or one.gain <= 0:
            continue
        result = answered(command, replace(question, on=report.slice, **one.flags))
        fault = _works(result)
        if not fault:
            gain = result.best.likely_tokens / best.likely_tokens - 1
            fault = "" if gain >= one.gain - APART else f"{one.gain:+.1%} said, {gain:+.1%} found"
        yield one.what, fault


def _works(result: Any) -> str:
    if isinstance(result, str):
        return f"refused: {result}"
    return f"exit code {result.exit_code}" if result.exit_code else ""


FOLLOWED = {
    TrainReport: _follow_training,
    ServeReport: _follow_serving,
    SimulateReport: _follow_simulation,
    RlReport: _follow_rl,
}
"""How the advice of each kind of answer is followed."""


# Errors, and what is typed instead.


def try_mistake(mistake: Mistake) -> list[Trial]:
    """A line with a mistake in it, and what its message says to type."""
    outcome = run(mistake.line)
    message = " ".join(outcome.text.split())
    if mistake.taken:
        said = outcome.code != REFUSED_CODE and mistake.taken in message
        fault = "" if said else f"exit code {outcome.code}, not said: {mistake.taken}"
        return [*_try_commands(mistake.line, message), Trial(mistake.line, message, fault)]
    if outcome.code not in (REFUSED_CODE, INFEASIBLE_CODE):
        return [Trial(mistake.line, "", f"exit code {outcome.code}, no error")]
    trials = list(_try_commands(mistake.line, message))
    guesses = _GUESS.findall(message)
    if mistake.far:
        return [*trials, Trial(mistake.line, message, f"a distant guess: {guesses}" if guesses else "")]
    for instead in guesses + _HERE.findall(message) + ["".join(found) for found in _SUCH_AS.findall(message)]:
        corrected = instead.join(mistake.line.rsplit(mistake.wrong, 1))
        again = run(corrected)
        fault = f"still refused: {_end(again)}" if again.code == REFUSED_CODE else ""
        trials.append(Trial(mistake.line, corrected, fault))
    says_something = any(not trial.advice.endswith("--help") for trial in trials)
    return trials if says_something else [Trial(mistake.line, message, "nothing to type is said")]


def followed(task: str | Mistake) -> list[Trial]:
    """All advice about a line followed; what breaks the planner is a failure too."""
    try:
        return try_answer(task) if isinstance(task, str) else try_mistake(task)
    except Exception as error:  # a table of failures is worth more than the first of them
        line = task if isinstance(task, str) else task.line
        return [Trial(line, "", f"{type(error).__name__}: {error}")]


def try_all(tasks: Sequence[str | Mistake], jobs: int = 1) -> Iterator[Trial]:
    """All advice about all lines, as it is followed."""
    if jobs == 1:
        for task in tasks:
            yield from followed(task)
        return
    with ProcessPoolExecutor(jobs) as workers:
        for trials in workers.map(followed, tasks):
            yield from trials


def main() -> int:
    """Draw, follow, print what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--errors", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    tasks: list[str | Mistake] = [*draw_lines(given.answers, given.seed), *draw_mistakes(given.errors, given.seed)]
    count, failures = 0, Counter[str]()
    for trial in try_all(tasks, given.jobs):
        count += bool(trial.advice)
        if trial.fault:
            failures[shlex.split(trial.line)[1]] += 1
            print(f"{trial.line}\n    {trial.advice}\n    {trial.fault}", flush=True)
    print(f"{len(tasks)} lines, {count} pieces of advice followed, {failures.total()} failed {dict(failures) or ''}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
