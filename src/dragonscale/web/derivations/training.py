"""Numbers of a training plan: the step from its terms, a term from its lines, memory from its tensors, the run from the
step."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.commands.charts.moves import mesh_axes
from dragonscale.commands.explain.formulas import QUANTITIES, FormulaLine
from dragonscale.commands.explain.train import StepFormulas, crossing_sentence
from dragonscale.commands.train.answered_slice import chosen_slice
from dragonscale.commands.train.cost import usd_per_mtok
from dragonscale.commands.train.plans import MEMORY_NAMES
from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render
from dragonscale.plan.ledger import HeldLine, LedgerLine
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.cost.step_ledger import WIRES
from dragonscale.training.cost.wire_crossings import crossings
from dragonscale.training.plan.plan import short_plan
from dragonscale.web.amounts import amount, length_text, money
from dragonscale.web.derivations.ledger_tables import constants_table, held_table, line_table
from dragonscale.web.derivations.letters import letters_of
from dragonscale.web.derivations.pieces import Compared, Piece, compared, formulas, row, step, titled
from dragonscale.web.derivations.profiles import kernel_sentence, network_sentence
from dragonscale.web.derivations.table import Numbers
from dragonscale.web.page_request import PageRequest

DAY = 86400.0


@dataclass(frozen=True)
class TrainNumbers(Numbers):
    """A plan of an answer, and what its numbers are derived from."""

    report: TrainReport
    one: PlanReport
    view: ClassVar[str] = "train"
    what: ClassVar[str] = "number of a training plan called"

    def names(self) -> dict[str, Any]:
        one, job, work, days = self.one, self.job, self.report.workload, self.one.days or 0.0
        each, goodput = job.model_flops / job.tokens, self.report.goodput
        million = usd_per_mtok(self.report, one)
        low, high = (days * bound / one.step_s for bound in (one.step_low_s, one.step_high_s))
        run = SimpleNamespace(
            tokens=work.tokens or 0.0,
            days=days,
            seconds=days * DAY,
            steps=one.steps or 0,
            failing_s=goodput and goodput.days * DAY,
            p90_s=goodput and goodput.days_p90 * DAY,
            usd=one.cost_usd if self.chip.price is not None else None,
            length=length_text(days),
            failing_length=goodput and length_text(goodput.days),
            p90_length=goodput and length_text(goodput.days_p90),
            bill=money(one.cost_usd),
            usd_per_mtok=million,
            million=money(million),
            band=f"{one.band}: {low:.3g} to {high:.3g} days here.",
            price=next((price.text for price in self.report.prices if price.chip == self.chip.name), ""),
        )
        flops = SimpleNamespace(per_token=each, per_parameter=each / work.parameters)
        memory = SimpleNamespace(
            share=one.hbm_bytes / one.hbm_limit_bytes,
            capacity=self.chip.memory["hbm"].capacity,
            error="Errors of memory against measured and compiled programs are listed in the docs.",
        )
        about = {"one": one, "job": job, "chip": self.chip, "work": work, "goodput": goodput}
        return {"of": self, **about, "run": run, "flops": flops, "memory": memory}

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        kinds = {"term": _Term, "memory": _Held, "sent": _Sent}
        return {"efficiency": self._efficiency} | {name: functools.partial(of, self) for name, of in kinds.items()}

    @functools.cached_property
    def job(self) -> Job:
        return self.report.asked.job.on_slice(chosen_slice(self.report.asked, self.report))

    @property
    def chip(self) -> Chip:
        return self.job.slice.chip

    @functools.cached_property
    def letters(self) -> StepFormulas:
        return StepFormulas.of(self.job, self.one.plan)

    # the step

    def where(self) -> str:
        return f"{short_plan(self.one.plan)} on {self.job.slice} with {self.job.stack.name}"

    def band(self) -> str:
        return f"{self.one.band}: {render(self.one.step_low_s, 's')} to {render(self.one.step_high_s, 's')} here."

    def peak_used(self) -> list[str]:
        return [f"matrix.{self.one.plan.dtype}"]

    def facts_used(self) -> list[str]:
        return [*self.peak_used(), "memory.hbm.bandwidth", "ici.link", "levels.node.bandwidth"]

    def kernels(self) -> tuple[str, list[Piece]]:
        return kernel_sentence(self.chip, self.job.stack.kernels.library)

    def networks(self) -> Compared:
        return compared(*network_sentence(self.chip, self.job.transport))

    def differs(self) -> Compared:
        """Bound and expectation side by side, why they differ, and the sources of that."""
        one, overlap, (kernels, sources) = self.one, self.job.stack.overlap, self.kernels()
        rows = [
            row("at best (all overlaps, datasheet rates)", amount(one.lower_s, "s", "lower_s")),
            row("expected", amount(one.step_s, "s", "step_s")),
            row("without overlap (datasheet rates)", amount(one.upper_s, "s", "upper_s")),
        ]
        if not one.sent_bytes:
            return {"rows": rows, "text": kernels}, sources
        networks, more = self.networks()
        hides = (
            f"What the stack {self.job.stack.name} hides under compute: {overlap.weight:.0%} of weight gathers and "
            f"scatters, {overlap.gradient:.0%} of the gradients' sum, {overlap.tensor:.0%} of tensor collectives; the "
            "rest is exposed."
        )
        return {"rows": rows, "text": f"{kernels} {networks['text']} {hides}"}, [*sources, *more]

    def _term_rows(self, seconds: Mapping[str, Any]) -> list[Piece]:
        return [row(name, amount(float(one), "s", f"term:{name}")) for name, one in seconds.items() if float(one) > 0]

    def exposed_rows(self) -> list[Piece]:
        return self._term_rows({term.name: term.exposed_s for term in self.one.terms})

    def bound_rows(self) -> list[Piece]:
        return self._term_rows({term.name: term.lower_s for term in self.one.terms})

    def bound_steps(self) -> list[Piece]:
        """Compute, and each kind of move: the largest of them is the bound."""
        bound, apart = self.report.ledger.by("term", "bound_s"), (*WIRES, "optimizer")
        compute = {name: float(one) for name, one in bound.items() if name not in apart}
        wires = {name: one for name, one in bound.items() if name in apart}
        total = amount(self.one.lower_s, "s", "lower_s")
        largest = "The bound is the largest of compute and these."
        return [
            step("Compute at datasheet rates", self._term_rows(compute), amount(sum(compute.values()), "s")),
            step("Each kind of move, and the update", self._term_rows(wires), total, largest),
        ]

    def step_formulas(self) -> Piece:
        bound, seconds = self.letters.verdict.ledger.by("term", "bound_s"), self.one.step_s
        order = [term.name for term in self.one.terms if term.name in bound and float(bound[term.name]) > 0]
        exposed = [term for term in self.one.terms if term.exposed_s > 0]
        names, numbers = [f"'{term.name}'" for term in exposed], [f"{term.exposed_s:.4g}" for term in exposed]
        put_in, shown = " + ".join(numbers), render(seconds, "s", 4)
        what = "step = what is exposed of each term"
        total = FormulaLine(what, " + ".join(names), put_in, shown, seconds, "s")
        bounds = [self.letters.say(f"{name}, at datasheet rates", bound[name], "s") for name in order]
        return self.lettered([total, *bounds])

    def lettered(self, lines: list[FormulaLine], otherwise: str = "") -> Piece:
        """Formulas of the ledger with their letters, or what is said where there are none."""
        letters = letters_of(self.letters.letters, self.chip, self.report.model)
        return formulas(lines, letters, notes=[otherwise] if otherwise and not lines else [])

    def crossovers(self, number: str) -> list[str]:
        """Where the step, or one of its kinds of moves, becomes bound by the network instead of compute."""
        term = number.partition(":")[2] if number.startswith("term:") else ""
        wires = any(line.moves for line in self.report.ledger.lines if line.term == term)
        if number not in ("step_s", "lower_s", "upper_s", "own_mfu") and not wires:
            return []
        return [text for name, text in self._solved if term in ("", name)]

    @functools.cached_property
    def _solved(self) -> list[tuple[str, str]]:
        """Crossovers in the batch, by term and in words."""
        solved = crossings(self.letters.verdict, self.letters.letters, ["batch"], self.one.plan)
        exposed, stack = self.report.ledger.by("term", "exposed_s"), self.job.stack.name
        return [(one.term, f"{crossing_sentence(one, float(exposed.get(one.term, 0.0)), stack)}.") for one in solved]

    # what follows from the step

    def _efficiency(self, text: str) -> SimpleNamespace:
        """How much a chip does here of what it does on the slice that others are held against."""
        part = float(text)
        return SimpleNamespace(part=part, first=self.one.tokens_per_s_per_chip / part if part else 0.0)

    def best_gain(self) -> float:
        if not self.one.helps:
            raise InputError("Nothing was found that would help this plan.")
        return self.one.helps[0].gain

    def help_rows(self) -> list[Piece]:
        gains = [amount(help.gain, "share", "helps", f"{help.gain:+.0%}") for help in self.one.helps]
        return [row(help.change, gain, help.needs) for help, gain in zip(self.one.helps, gains, strict=True)]

    @property
    def measured(self) -> Any:
        if self.report.measured is None:
            raise InputError("No measured step was given.")
        return self.report.measured

    def suspect_rows(self) -> list[Piece]:
        return [row(one.cause, amount(one.step_s, "s", "measured"), one.look) for one in self.measured.suspects]

    # memory

    def memory_rows(self) -> list[Piece]:
        held = [part for part in self.one.memory if part.bytes > 0]
        return [row(part.name, amount(part.bytes, "bytes", f"memory:{part.name}")) for part in held]

    def held_sizes(self) -> list[tuple[str, Any]]:
        """Parts of memory over letters."""
        held = self.letters.verdict.ledger.memory.items()
        return [(MEMORY_NAMES.get(part, part), size) for part, size in held]

    def memory_formulas(self) -> Piece:
        sizes = [(name, size) for name, size in self.held_sizes() if float(size) > 0]
        return self.lettered([self.letters.say(name, size, "bytes") for name, size in sizes])

    def limit_facts(self) -> list[str]:
        visible = "memory.hbm.visible" if "memory.hbm.visible" in self.chip.facts else "memory.hbm.capacity"
        return [visible, "memory.hbm.capacity"]


class _Term:
    """The lines of the ledger that are counted under one name."""

    def __init__(self, of: TrainNumbers, name: str) -> None:
        terms = {term.name: term for term in of.one.terms}
        if name not in terms:
            raise unknown("term of this plan called", name, terms)
        self.of, self.name, self.term, self.title = of, name, terms[name], titled(name)
        self.lines: list[LedgerLine] = [line for line in of.report.ledger.lines if line.term == name]
        self.moves = any(line.moves for line in self.lines)
        self.kind = "moves between chips" if self.moves else "kernels"
        self.many = f"{len(self.lines)} line{'s' * (len(self.lines) != 1)}"

    def tables(self) -> list[Piece]:
        return [*constants_table(self.of.job, self.name), line_table(self.lines)]

    def compared(self) -> Compared:
        term, why = self.term, f"term:{self.name}"
        hidden = max(term.expected_s - term.exposed_s, 0.0)
        times = (
            f"{term.expected_s / term.lower_s:.2f} times its bound" if min(term.expected_s, term.lower_s) > 0 else ""
        )
        rows = [
            row("at datasheet rates", amount(term.lower_s, "s", why)),
            row("expected", amount(term.expected_s, "s", why), times),
            row("exposed: the step waits for it", amount(term.exposed_s, "s", why)),
            row("hidden under compute", amount(hidden, "s", why)),
        ]
        networks, second = self.of.networks()
        text, sources = (networks["text"], second) if self.moves else self.of.kernels()
        if hidden > 0:
            text += f" The stack {self.of.job.stack.name} runs {render(hidden, 's')} of it under compute."
        return {"rows": rows, "text": text}, sources

    def formulas(self) -> Piece:
        say, ledger = self.of.letters.say, self.of.letters.verdict.ledger
        totals = [
            (words, ledger.by("term", key).get(self.name, 0.0), unit)
            for key, words, unit in (*QUANTITIES, ("bound_s", "seconds at datasheet rates", "s"))
        ]
        none = "This term has no bound: it is what the stack's constants add, which the table tells."
        return self.of.lettered([say(words, total, unit) for words, total, unit in totals if float(total)], none)


class _Held:
    """One part of memory, tensor by tensor."""

    def __init__(self, of: TrainNumbers, name: str) -> None:
        parts = {part.name: part.bytes for part in of.one.memory}
        if name not in parts:
            raise unknown("part of this plan's memory called", name, parts)
        self.of, self.name, self.bytes, self.title = of, name, parts[name], titled(name)
        self.lines: list[HeldLine] = [
            line for line in of.report.ledger.held if MEMORY_NAMES.get(line.part, line.part) == name
        ]
        self.many = f"{len(self.lines)} tensor{'s' * (len(self.lines) != 1)}"

    def tables(self) -> list[Piece]:
        return [held_table(self.lines, amount(self.bytes, "bytes", f"memory:{self.name}"))]

    def formulas(self) -> Piece:
        own = [(name, size) for name, size in self.of.held_sizes() if name == self.name]
        lines = [self.of.letters.say(name, size, "bytes") for name, size in own]
        return self.of.lettered(lines, "It is not sized by letters of the plan.")


class _Sent:
    """Bytes over an axis, by the collectives that send them."""

    def __init__(self, of: TrainNumbers, name: str) -> None:
        self.of, self.name = of, name
        moves = [line for line in of.report.ledger.lines if line.moves]
        self.lines = [line for line in moves if name in ("+".join(sorted(line.axes)), *line.axes)]
        if not self.lines:
            raise unknown("mesh axis that something is sent over called", name, of.one.sent_bytes)
        self.many = len(self.lines)
        self.bytes = sum(float(line.total("wire_bytes")) for line in self.lines)

    def tables(self) -> list[Piece]:
        degrees = vars(self.of.one.plan)
        axes = [axis for axis in mesh_axes(degrees, self.of.report.ledger.lines) if axis.name == self.name]
        sums = []
        for move in (move for axis in axes for move in axis.moves):
            values = ("bytes", move.bytes, "bytes"), ("expected", move.seconds, "s"), ("exposed", move.exposed, "s")
            sums.append(step(move.name, [row(name, amount(value, unit)) for name, value, unit in values]))
        return [*sums, line_table(self.lines)]

    def formulas(self) -> Piece:
        say, sent = self.of.letters.say, self.of.letters.verdict.ledger.sent_bytes.items()
        own = [("+".join(axes), size) for axes, size in sent if self.name in ("+".join(axes), *axes)]
        return self.of.lettered([say(f"bytes sent over {axes}", size, "bytes") for axes, size in own])


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any], _: str) -> TrainNumbers:
    """The first plan of an answer."""
    record = asked.ask(of, fields, brief=False)
    if not record.plans:
        raise InputError("There is no plan, so there is nothing to derive.")
    kept = vars(record)  # beside its fields: the next number of the same answer finds its letters there
    return kept.setdefault("derived", TrainNumbers(record, record.plans[0]))
