"""The answer to `dscale estimate`, put together from what was asked; and laid out: the few numbers to take away, then
every line with its formula and the numbers put in."""

import shlex
import tomllib
from importlib import resources
from typing import Any

from msgspec.structs import replace

from dragonscale.blocks.sheet import Block, Column, Facts, Grid, NextStep, Prose, Sheet, Title, amount, facts, table
from dragonscale.commands.estimate import estimate_lines as lines
from dragonscale.commands.estimate.estimate_lines import BESIDE, FINE_TUNING, SAID, TRAINING_MEMORY
from dragonscale.commands.estimate.estimate_question import EstimateAsked, read_question
from dragonscale.commands.estimate.estimate_records import EstimateLine, EstimateReport, Paper
from dragonscale.commands.questions.operations import EstimateQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.listener import Listener

# Tokens of a step where nobody has said how many, as `dscale explain train` takes them.
STEP = "4Mi"
# Of the memory of a slice, what the state of training may take for activations and buffers to fit beside it.
STATE_PART = 0.75
# The facts to take away first.
KEYS = ("run", "fine-tuning", "decode")


def estimate_blocks(report: EstimateReport, _: bool) -> Sheet:
    """The whole answer."""
    letters = report.letters
    asides: list[str] = []
    if report.find("training FLOPs (6ND)"):
        asides.append(f"{amount(report.tokens, 'count')} tokens")
    if report.find("KV bytes a sequence"):
        asides.append(f"context {report.context:,}")
    for name in ("batch", "prompt", "chips"):
        if name in letters:
            asides.append(f"{name} {letters[name]:,.0f}")
    if report.find("decode step"):
        asides.append(f"weights in {report.weights}")
    if report.on:
        asides.append(f"MFU {report.mfu:.0%}")
    where = ""
    if report.on:
        where = f" on {report.on}"
    title = Title(
        f"{report.model} ({amount(report.parameters, 'count')} parameters){where}: the back of the envelope",
        ", ".join(asides),
    )
    groups = list(dict.fromkeys(line.group for line in report.lines))
    tables = [_table(group, [line for line in report.lines if line.group == group]) for group in groups]
    blocks: list[Block] = [title, _summary(report), *tables, Prose(_legend(report), "dim")]
    if report.notes:
        blocks += [Prose("\n".join(report.notes), "dim")]
    return Sheet((*blocks, *next_command(report)))


def _where_it_trains(report: EstimateReport, on: str) -> str:
    """The slice that was asked about, or its chip, of which a plan takes as many as hold the job, where it is too
    small or nearly so."""
    fewest = report.find("fewest chips for 16 bytes a parameter")
    if fewest is None or STATE_PART * report.letters.get("chips", 0) >= fewest.value:
        return on
    return on.rpartition(":")[0]


def next_command(report: EstimateReport) -> list[Block]:
    """The same model on the same chips, planned."""
    question = getattr(report.asked, "question", None)
    if question is None or not isinstance(question.model, str) or not isinstance(question.on, str):
        return []
    if not (question.model and question.on):
        return []
    trains = report.find("decode step") is None
    if trains and ":" not in question.on:
        return []
    command, on, why = "serve", question.on, "Next, how to serve it there:"
    flags = {"prompt": question.prompt}
    if trains:
        command, on, why = "train", _where_it_trains(report, on), f"Next, a plan (for steps of {STEP} tokens):"
        flags = {"batch": STEP, "seq": question.seq}
        if question.tokens != "chinchilla":  # which is the usual number of tokens
            flags["tokens"] = question.tokens
    flags["price"] = question.price
    text = f"dscale {command} {shlex.quote(question.model)} --on {shlex.quote(on)}"
    for name, value in flags.items():
        if value:
            text += f" --{name} {shlex.quote(value)}"
    return [NextStep(text, why)]


def _summary(report: EstimateReport) -> Facts:
    lines = []
    for label, wanted in _table_of("summary.toml").items():
        texts = []
        if label == "run":
            texts = [_run_flops(report)]
        texts += [
            template.format(line.shown) for name, template in wanted.items() if (line := report.find(name)) is not None
        ]
        lines.append((label, ", ".join(filter(None, texts)), "key" if label in KEYS else ""))
    return facts(*lines)


def _table_of(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("dragonscale.commands.estimate") / name).read_text(encoding="utf-8"))


def _run_flops(report: EstimateReport) -> str:
    """The FLOPs that the run's time is of: 6ND, and attention where the architecture is known."""
    dense, attention = report.find("training FLOPs (6ND)"), report.find("attention FLOPs")
    if dense is None:
        return ""
    if attention is None:
        return f"{dense.shown} (6ND)"
    whole = replace(dense, value=dense.value + attention.value).shown
    dense_text, time = dense.shown.removesuffix(" FLOP"), report.find("run time")
    if time is not None:  # what a calculation by hand gives
        dense_text += f", {replace(time, value=time.value / (1 + attention.value / dense.value)).shown} alone,"
    return f"{whole} (6ND {dense_text} and attention at {report.letters['T']:,.0f} tokens)"


def _table(group: str, lines: list[EstimateLine]) -> Grid:
    columns = [
        Column(group, wrap=True),
        Column("", right=True, tone="key"),
        Column("formula = with numbers", wrap=True),
    ]
    foot = {TRAINING_MEMORY: SAID, FINE_TUNING: BESIDE}.get(group, "")
    return table(columns, [(line.name, line.shown, _worked(line)) for line in lines], foot=foot)


def _worked(line: EstimateLine) -> str:
    """The formula, and what it is with its numbers; with dots and gaps, where a line may break."""
    texts = [text.replace("*", "·").replace("/", " / ") for text in (line.formula, line.numbers)]
    if line.formula == line.numbers:
        return texts[0]
    return " = ".join(texts)


def _legend(report: EstimateReport) -> str:
    names = _table_of("letters.toml").items()
    return "; ".join(f"{name} {meaning}" for name, meaning in names if name in report.letters) + "."


def ask(question: EstimateQuestion, listener: Listener) -> EstimateReport:
    """Read a question, tell how it was read, and answer it."""
    job = read_question(question)
    for text in job.notes:
        listener.note(text)
    return answer(job).came_from(job, listener.notes)


def answer(job: EstimateAsked) -> EstimateReport:
    """Every line that can be worked out from what is known."""
    paper = Paper(job.model.program().sections if job.model is not None else ())
    lines.write_weights(job, paper)
    if job.training:
        # adapters are not trained on a whole run's tokens
        if job.question.lora_rank is None or job.question.tokens.strip():
            lines.write_run(job, paper)
        lines.write_state(job, paper)
    if job.serving:
        lines.write_cache(job, paper)
        if job.chip is not None:
            lines.write_serving(job, paper)
    if job.question.lora_rank is not None:
        lines.write_finetuning(job, paper)
    if job.piece is not None:
        where = str(job.piece)
    else:
        where = ""
        if job.chip is not None:
            where = job.chip.name
    sizes = job.total, job.active, job.tokens, job.seq, job.context, job.mfu
    letters, weights = dict(paper.letters.values), job.question.weights
    report = EstimateReport(job.name, where, *sizes, paper.lines, letters, [], weights)
    report.notes = _notes(job, report)
    return report


def _notes(job: EstimateAsked, report: EstimateReport) -> list[str]:
    notes = []
    fewest, largest = report.find("fewest chips"), report.find("largest batch")
    if job.piece is not None and fewest is not None and fewest.value > job.piece.chips:
        notes.append(f"{job.piece} does not hold the weights and the batch: that takes {fewest.value:,.0f} chips.")
    elif largest is not None and largest.value < job.batch:
        notes.append(f"Only {largest.value:,.0f} of {job.batch:,} sequences fit beside the weights.")
    if job.sparse and job.model is None and job.serving and job.chip is not None:
        notes.append("A decode step reads every expert here, as a large batch does; a small one reads fewer.")
    if job.chip is not None:
        notes.append(
            "Communication, workspace and launch gaps are left out: `dscale train` and `dscale serve` have them."
        )
    return notes


bind(EstimateReport, Face(estimate_blocks))
