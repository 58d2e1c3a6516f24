"""`dscale models --on 'RTX 4090'`: the models that run there, in which formats, with how much context and how fast.

What a row says is what `dscale serve MODEL --on … --engine … --quantize … --batch 1` answers: it is planned by the same
code. Models whose weights alone are larger than the memory are left out before anything is planned.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount
from dragonscale.commands import grids
from dragonscale.commands.asked_chips import asked_chips, read_targets
from dragonscale.commands.detected import detected_slice
from dragonscale.commands.questions.facts import ModelsQuestion
from dragonscale.commands.questions.flag import check_limits, written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.record import Beside, Face, Record, bind
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.trainable import TunedRow, largest_tuned, tuned_text
from dragonscale.errors import InputError, shorten
from dragonscale.exports.model_names import served_id
from dragonscale.listener import Listener
from dragonscale.models import load_model, model_names
from dragonscale.models.assumed import with_assumed
from dragonscale.models.catalogue import published_fp8
from dragonscale.models.served_checkpoints import published_weights
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.catalogue import chip_path
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.serving.advice.bills import memory_use
from dragonscale.serving.advice.refusals import possible
from dragonscale.serving.advice.search import paced_search, ranked_by_format
from dragonscale.serving.engine.auto import auto_choice
from dragonscale.serving.engine.checkpoint import bits, own_formats
from dragonscale.serving.engine.engine import load_engine, spelt_engine
from dragonscale.serving.engine.legality import runs_on
from dragonscale.serving.space.legal import engine_refusal
from dragonscale.serving.space.space import slices_of
from dragonscale.tables import beside

# The word of the table for a checkpoint's own format.
OWN = "own"


class RunnableRow(msgspec.Struct):
    """A model in a format, for one user: `tokens_per_s` while decoding, `context` the longest request that fits.

    `comfortable` says that there is room for the context that was asked for, at a reading pace or better. `command` is
    the question whose answer these numbers are."""

    model: str
    parameters: int
    active_parameters: int
    engine: str
    format: str
    plan: str
    memory_bytes: float
    context: int
    tokens_per_s: float
    comfortable: bool
    command: str


class RunnableReport(Record):
    """What runs on a slice, the largest models first, each in the first format of its engine that leaves room; of a
    model that was named, in every format. `--json` has every format of every model that fits."""

    ROWS: ClassVar[str] = "models"
    search = Beside["RunnableSearch | None"](None)
    named = Beside("")

    slice: str
    context: int
    reading_tokens_per_s: float
    detected: str
    models: list[RunnableRow]
    cramped: list[RunnableRow]
    fine_tunes: list[TunedRow]
    complete: bool

    def headline(self) -> str:
        return _verdict(self)

    @property
    def exit_code(self) -> int:
        return 0 if self.models or self.cramped else 3

    def to_dict(self) -> dict[str, Any]:
        """The answer with every row that there is."""
        if self.search is None:
            return super().to_dict()
        models: list[RunnableRow] = []
        cramped: list[RunnableRow] = []
        for candidate in self.search.candidates:
            for row in self.search.rows_of(candidate):
                (models if row.comfortable else cramped).append(row)
        return msgspec.to_builtins(msgspec.structs.replace(self, models=models, cramped=cramped, complete=True))


@dataclass(frozen=True)
class RunnableModel:
    """A model that may fit: what was given for it, and what that is called."""

    given: Any
    name: str
    model: Transformer
    parameters: int
    active_parameters: int


@dataclass(frozen=True)
class RunnableSearch:
    """Where models are to run and what there has to be room for. `on` is the slice as a command reads it."""

    on: str
    piece: Slice
    engine: str
    context: int
    candidates: Sequence[RunnableModel]
    planned: dict[tuple[str, str], RunnableRow | None] = field(default_factory=dict)

    def engine_for(self, model: Transformer) -> str:
        """What `--engine` says: the engine that was asked for, or that people run on machines of their own; empty where
        it is left to `dscale serve`."""
        chip = self.piece.chip
        if self.engine:
            return self.engine
        for row in _table()["engines"]:
            if re.search(row["chips"], chip.name) and runs_on(row["engine"], chip):
                return row["engine"]
        if self._usual(model) == "generic" and runs_on("llama.cpp", chip):
            return "llama.cpp"
        return ""

    def _usual(self, model: Transformer) -> str:
        """The engine of `--engine auto` for a copy on these chips."""
        return auto_choice(self.piece.chip, model, self.piece.chips).engine

    def rows_of(self, candidate: RunnableModel) -> Iterator[RunnableRow]:
        """A model in each format that fits, the preferred one first."""
        engine = self.engine_for(candidate.model)
        for quantize in self._formats(candidate, engine):
            row = self._row(candidate, engine, quantize)
            if row is not None:
                yield row

    def best_of(self, candidate: RunnableModel) -> RunnableRow | None:
        """A model in the first of its formats with room and pace; without such a one, in the one with most context."""
        cramped: list[RunnableRow] = []
        for row in self.rows_of(candidate):
            if row.comfortable:
                return row
            cramped.append(row)
        return max(cramped, key=lambda row: row.context, default=None)

    def _formats(self, candidate: RunnableModel, engine: str) -> list[str]:
        """What `--quantize` says for each format to try, empty for the checkpoint's own; those whose weights alone are
        larger than the memory are left out."""
        model, chip = candidate.model, self.piece.chip
        engine = engine or self._usual(model)
        native = own_formats(engine, chip, model)
        row = next(row for row in _table()["formats"] if engine in row.get("engines", [engine]))
        names = list(row["names"])
        if "published" in row:
            public = published_weights(served_id(candidate.name))
            if published_fp8(candidate.name):
                public.append("fp8")
            names += [name for name in row["published"] if name in public]
        total_bytes = self.piece.chips * chip.visible
        formats: list[str] = []
        for name in names:
            stored = native.weights if name == OWN and native is not None else name
            # a file in no fewer bits than the checkpoint's is not made of it
            wider = name != OWN and native is not None and bits(native.weights) <= bits(name)
            if stored == OWN or wider or candidate.parameters * dtype_bytes(stored) > total_bytes:
                continue
            formats.append("" if name == OWN else name)
        return formats

    def _row(self, candidate: RunnableModel, engine: str, quantize: str) -> RunnableRow | None:
        """A model in a format, as `dscale serve` plans it for one user; None where it does not fit."""
        if (candidate.name, quantize) not in self.planned:
            self.planned[candidate.name, quantize] = self._plan(candidate, engine, quantize)
        return self.planned[candidate.name, quantize]

    def _plan(self, candidate: RunnableModel, engine: str, quantize: str) -> RunnableRow | None:
        job = read_question(ServeQuestion(candidate.given, self.on, engine=engine, quantize=quantize, batch=1))
        if possible(job).is_nothing:
            return None
        paced = paced_search(job)
        if not paced.configs:
            return None
        job = replace(job, ask=replace(job.ask, tpot=paced.tpot))
        best = ranked_by_format(job, paced.configs).native[0]
        context, tokens_per_s = memory_use(job, best).largest_context, 1 / float(best.state.tpot)
        return RunnableRow(
            model=candidate.name,
            parameters=candidate.parameters,
            active_parameters=candidate.active_parameters,
            engine=job.engine_spec(best.engine),
            format=best.plan.weights,
            plan=str(best.plan),
            memory_bytes=float(best.hbm_bytes),
            context=context,
            tokens_per_s=tokens_per_s,
            comfortable=context >= self.context and tokens_per_s >= reading_pace(),
            command=_command(candidate.name, self.on, engine, quantize),
        )


def _table() -> dict[str, Any]:
    return beside(__file__, "popular_models.toml")


def reading_pace() -> float:
    """Tokens that a reader takes in a second."""
    reading = _table()["reading"]
    return reading["words_per_minute"] / 60 / reading["words_per_token"]


def _command(model: str, on: str, engine: str, quantize: str) -> str:
    """The question whose answer a row is, as it is typed."""
    flags = {"--on": on, "--engine": engine, "--quantize": quantize, "--batch": "1"}
    typed = [f"{flag} {shlex.quote(text)}" for flag, text in flags.items() if text]
    return " ".join(["dscale serve", shlex.quote(model), *typed])


def ask(question: ModelsQuestion, listener: Listener) -> RunnableReport:
    """What runs where a question says, or on this machine."""
    check_limits(question)
    on, sentence = question.on, ""
    if question.here:
        if not is_blank(on):
            raise InputError("--here is this machine and --on another one; give one of them.")
        detected = detected_slice()
        on, sentence = detected.on, detected.sentence
    search = _search(question, on, question.seq.tokens(listener))
    report = RunnableReport(
        slice=str(search.piece),
        context=search.context,
        reading_tokens_per_s=reading_pace(),
        detected=sentence,
        models=[],
        cramped=[],
        fine_tunes=[],
        complete=True,
    )
    if not is_blank(question.model):
        report.named = search.candidates[0].name
        report.models = list(search.rows_of(search.candidates[0]))
        return report.came_from(question, listener.notes)
    for number, candidate in enumerate(search.candidates, 1):
        if len(report.models) == question.top:
            report.complete = False
            break
        row = search.best_of(candidate)
        if row is not None:
            (report.models if row.comfortable else report.cramped).append(row)
        listener.step(number, len(search.candidates))
    report.search = search
    report.fine_tunes = largest_tuned(search.on, search.piece, [candidate.name for candidate in search.candidates])
    return report.came_from(question, listener.notes)


def is_blank(value: Any) -> bool:
    """Whether nothing is named.

    >>> is_blank(" "), is_blank("h100")
    (True, False)
    """
    return isinstance(value, str) and not value.strip()


def _search(question: ModelsQuestion, on: Any, context: int) -> RunnableSearch:
    """Where to look, and for which models, the largest first."""
    named, everywhere = read_targets(asked_chips(on, ""))
    if everywhere or len(named) != 1:
        raise InputError(f"What runs is told of one chip or slice; --on is {shorten(written(on))}.")
    chip, slice_ = next(iter(named.values()))
    # a chip alone is one of them
    chosen = slice_ or slices_of(chip)[0]
    spelled = str(chosen)
    if isinstance(on, str) and chip_path(on):
        spelled = f"{chip_path(on)}:{spelled.rpartition(':')[2]}"
    engine = ""
    if question.engine.strip() not in ("", "auto"):
        engine = spelt_engine(question.engine)
        refusal = engine_refusal(load_engine(engine).name, chip)
        if refusal:
            raise InputError(f"{refusal}.")
    names: Sequence[Any] = _table()["names"]
    if not is_blank(question.model):
        names = [with_assumed(question.model, question.assume, question.family)]
        if load_model(names[0]).task:
            command = f"dscale serve {shlex.quote(written(question.model))} --on {shlex.quote(spelled)}"
            raise InputError(
                f"{written(question.model)} writes no tokens whose speed could be listed; `{command}` answers how many "
                "prompts it takes."
            )
    elif question.assume or question.family:
        raise InputError("--assume and --as are about one model; name it, such as llama3-8b.")
    elif question.all:
        names = model_names()
    return RunnableSearch(spelled, chosen, engine, context, _candidates(names))


def _candidates(names: Sequence[Any]) -> list[RunnableModel]:
    """Models that write text, the one with the most parameters first."""
    candidates = []
    for name in names:
        model = load_model(name)
        if not model.task:
            counts = count_parameters(model)
            candidates.append(RunnableModel(name, written(name), model, int(counts.total), int(counts.active)))
    return sorted(candidates, key=lambda candidate: (-candidate.parameters, candidate.name))


def runnable_blocks(report: RunnableReport, _detail: bool) -> laid.Sheet:
    """The largest model that runs well, then a line for each."""
    blocks: list[laid.Block] = [laid.Prose(_verdict(report), "key")]
    rows = report.models or report.cramped
    if not rows and report.named:
        command = f"dscale serve {shlex.quote(report.named)} --on {shlex.quote(report.slice)} --quantize any"
        return laid.Sheet((*blocks, laid.NextStep(command, "What is missing, and what would help:")))
    if not rows:
        return laid.Sheet(tuple(blocks))
    engines = len({row.engine for row in rows}) > 1
    table = grids.grid("runnable", rows, without=() if engines else ("engine",))
    notes = [_order(report), tuned_text(report.fine_tunes), report.detected]
    blocks += [table, laid.Prose("\n".join(filter(None, notes)), "dim")]
    command = rows[0].command
    return laid.Sheet((*blocks, laid.NextStep(command, "The first row in full (others by their model and format):")))


def _verdict(report: RunnableReport) -> str:
    """The largest model that runs well, or that nothing does."""
    if report.named and not report.models:
        return f"{report.named} does not fit {report.slice} in any usual format."
    if not report.models and not report.cramped:
        return f"Nothing of what was tried fits {report.slice}."
    if not report.models:
        least = report.cramped[-1]
        return (
            f"Nothing runs well on {report.slice}: {least.model} in {least.format} has {least.tokens_per_s:.3g} "
            f"tokens/s and room for {least.context:,} tokens of context."
        )
    first = report.models[0]
    upto = "" if report.named else "up to "
    return (
        f"Runs on {report.slice}: {upto}{first.model} ({amount(first.parameters, 'count')}) in {first.format} by "
        f"{first.engine}, {first.tokens_per_s:.3g} tokens/s, context {first.context:,}."
    )


def _order(report: RunnableReport) -> str:
    """How rows are chosen and ordered, and what was left out."""
    if report.named:
        return "One user, a prompt of 2,048 tokens; formats in the order in which they are preferred."
    whose = "Presets" if report.asked.all else f"Models people run ({_table()['date']})"
    text = (
        f"{whose} with room for {report.context:,} tokens of context at reading pace "
        f"({report.reading_tokens_per_s:.0f} tokens/s), the largest first, each in its widest usual format."
    )
    if not report.complete:
        text += f" More: --top {2 * len(report.models)}."
    return text


bind(RunnableReport, Face(runnable_blocks))
