"""Numbers of a training plan: the step from its terms, a term from its lines, memory from its tensors, the run from the
step."""

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.blocks.amounts import amount, length_text, money
from dragonscale.commands.charts.moves import mesh_axes
from dragonscale.commands.explain.formulas import QUANTITIES, FormulaLine
from dragonscale.commands.explain.numbers.ledger_tables import constants_table, held_table, line_table
from dragonscale.commands.explain.numbers.number_table import Numbers
from dragonscale.commands.explain.numbers.records import (
    Comparison,
    DerivationStep,
    LineTable,
    NumberFormulas,
    Part,
    plural,
    price_text,
    term_rows,
    titled,
)
from dragonscale.commands.explain.train import StepFormulas, crossing_sentence
from dragonscale.commands.train.answered_slice import chosen_slice
from dragonscale.commands.train.cost import usd_per_mtok
from dragonscale.commands.train.plans import MEMORY_NAMES
from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.provenance import ProfileBasis, kernels_measured, networks_measured
from dragonscale.physics.units import render
from dragonscale.plan.letter_meanings import letter_meanings
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.cost.step_ledger import WIRES
from dragonscale.training.cost.wire_crossings import crossings
from dragonscale.training.plan.plan import short_plan

DAY = 86400.0


@dataclass(frozen=True)
class TrainNumbers(Numbers):
    """A plan of an answer, and what its numbers are derived from."""

    report: TrainReport
    plan: PlanReport
    view: ClassVar[str] = "train"
    what: ClassVar[str] = "number of a training plan called"

    def names(self) -> dict[str, Any]:
        plan, job, work, goodput = self.plan, self.job, self.report.workload, self.report.goodput
        days = plan.days or 0.0
        million = usd_per_mtok(self.report, plan)
        # the run is as uncertain as the step that it repeats
        low_days, high_days = days * plan.step_low_s / plan.step_s, days * plan.step_high_s / plan.step_s
        run = SimpleNamespace(
            tokens=work.tokens or 0.0,
            days=days,
            seconds=days * DAY,
            steps=plan.steps or 0,
            failing_s=goodput and goodput.days * DAY,
            p90_s=goodput and goodput.days_p90 * DAY,
            # a chip without a price has a run without a bill, whatever other chips cost
            usd=plan.cost_usd if self.chip.price is not None else None,
            length=length_text(days),
            failing_length=goodput and length_text(goodput.days),
            p90_length=goodput and length_text(goodput.days_p90),
            bill=money(plan.cost_usd),
            usd_per_mtok=million,
            million=money(million),
            band=f"{plan.band}: {low_days:.3g} to {high_days:.3g} days here.",
            price=price_text(self.report.prices, self.chip),
        )
        token_flops = job.model_flops / job.tokens
        memory = SimpleNamespace(
            share=plan.hbm_bytes / plan.hbm_limit_bytes,
            capacity=self.chip.memory["hbm"].capacity,
            error="Errors of memory against measured and compiled programs are listed in the docs.",
        )
        return {
            "of": self,
            "plan": plan,
            "job": job,
            "chip": self.chip,
            "work": work,
            "goodput": goodput,
            "run": run,
            "flops": SimpleNamespace(per_token=token_flops, per_parameter=token_flops / work.parameters),
            "memory": memory,
        }

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {
            "efficiency": self._efficiency,
            "term": functools.partial(_Term, self),
            "memory": functools.partial(_Held, self),
            "sent": functools.partial(_Sent, self),
        }

    @functools.cached_property
    def job(self) -> Job:
        return self.report.asked.job.on_slice(chosen_slice(self.report.asked, self.report))

    @property
    def chip(self) -> Chip:
        return self.job.slice.chip

    @functools.cached_property
    def letters(self) -> StepFormulas:
        return StepFormulas.of(self.job, self.plan.plan)

    # the step

    def where(self) -> str:
        return f"{short_plan(self.plan.plan)} on {self.job.slice} with {self.job.stack.name}"

    def band(self) -> str:
        return f"{self.plan.band}: {render(self.plan.step_low_s, 's')} to {render(self.plan.step_high_s, 's')} here."

    def peak_used(self) -> list[str]:
        return [f"matrix.{self.plan.plan.dtype}"]

    def facts_used(self) -> list[str]:
        return [*self.peak_used(), "memory.hbm.bandwidth", "ici.link", "levels.node.bandwidth"]

    def kernels(self) -> ProfileBasis:
        return kernels_measured(self.chip, self.job.stack.kernels.library)

    def networks(self) -> Comparison:
        return Comparison.of(networks_measured(self.chip, self.job.transport))

    def differs(self) -> Comparison:
        """Bound and expectation side by side, why they differ, and the sources of that."""
        plan, overlap, kernels = self.plan, self.job.stack.overlap, self.kernels()
        rows = [
            Part("at best (all overlaps, datasheet rates)", amount(plan.lower_s, "s", "lower_s")),
            Part("expected", amount(plan.step_s, "s", "step_s")),
            Part("without overlap (datasheet rates)", amount(plan.upper_s, "s", "upper_s")),
        ]
        if not plan.sent_bytes:
            return Comparison.of(kernels, rows)
        networks = self.networks()
        overlapped = (
            f"What the stack {self.job.stack.name} hides under compute: {overlap.weight:.0%} of weight gathers and "
            f"scatters, {overlap.gradient:.0%} of the gradients' sum, {overlap.tensor:.0%} of tensor collectives; the "
            "rest is exposed."
        )
        text = f"{kernels.text} {networks.text} {overlapped}"
        return Comparison(text, [*kernels.sources, *networks.sources], rows)

    def exposed_rows(self) -> list[Part]:
        return term_rows("term", ((term.name, term.exposed_s) for term in self.plan.terms))

    def bound_rows(self) -> list[Part]:
        return term_rows("term", ((term.name, term.lower_s) for term in self.plan.terms))

    def bound_steps(self) -> list[DerivationStep]:
        """Compute, and each kind of move: the largest of them is the bound."""
        compute, separate, compute_s = list[tuple[str, float]](), list[tuple[str, float]](), 0.0
        for name, seconds in self.report.ledger.by("term", "bound_s").items():
            # each kind of move has wires of its own, and the update may overlap the next step
            if name in WIRES or name == "optimizer":
                separate.append((name, float(seconds)))
            else:
                compute.append((name, float(seconds)))
                compute_s += float(seconds)
        total = amount(self.plan.lower_s, "s", "lower_s")
        largest = "The bound is the largest of compute and these."
        return [
            DerivationStep("Compute at datasheet rates", term_rows("term", compute), amount(compute_s, "s")),
            DerivationStep("Each kind of move, and the update", term_rows("term", separate), total, largest),
        ]

    def step_formulas(self) -> NumberFormulas:
        """The step as the sum of what is exposed, and each term's bound over letters."""
        bound, seconds = self.letters.verdict.ledger.by("term", "bound_s"), self.plan.step_s
        # times add up where nothing overlaps, which is what "exposed" means
        exposed = [term for term in self.plan.terms if term.exposed_s > 0]
        names = " + ".join(f"'{term.name}'" for term in exposed)
        put_in = " + ".join(f"{term.exposed_s:.4g}" for term in exposed)
        total = FormulaLine("step = what is exposed of each term", names, put_in, render(seconds, "s", 4), seconds, "s")
        lines = [total]
        for term in self.plan.terms:
            if float(bound.get(term.name, 0.0)) > 0:
                lines.append(self.letters.say(f"{term.name}, at datasheet rates", bound[term.name], "s"))
        return self.lettered(lines)

    def lettered(self, lines: list[FormulaLine], otherwise: str = "") -> NumberFormulas:
        """Formulas of the ledger with their letters, or what is said where there are none."""
        letters = letter_meanings(self.letters.letters, self.chip, self.report.model)
        return NumberFormulas.of(lines, letters, otherwise)

    def crossovers(self, number: str) -> list[str]:
        """Where the step, or one of its kinds of moves, becomes bound by the network instead of compute."""
        if number in ("step_s", "lower_s", "upper_s", "own_mfu"):
            return [text for _, text in self._solved]
        kind, _, term = number.partition(":")
        moving = {line.term for line in self.report.ledger.lines if line.moves}
        if kind != "term" or term not in moving:
            return []
        return [text for name, text in self._solved if name == term]

    @functools.cached_property
    def _solved(self) -> list[tuple[str, str]]:
        """Crossovers in the batch, by term and in words."""
        solved = crossings(self.letters.verdict, self.letters.letters, ["batch"], self.plan.plan)
        exposed, sentences = self.report.ledger.by("term", "exposed_s"), list[tuple[str, str]]()
        for crossing in solved:
            exposed_s = float(exposed.get(crossing.term, 0.0))
            text = crossing_sentence(crossing, exposed_s, self.job.stack.name)
            sentences.append((crossing.term, f"{text}."))
        return sentences

    # what follows from the step

    def _efficiency(self, text: str) -> SimpleNamespace:
        """How much a chip does here of what it does on the slice that others are held against."""
        part, first = float(text), 0.0
        if part:
            first = self.plan.tokens_per_s_per_chip / part
        return SimpleNamespace(part=part, first=first)

    def best_gain(self) -> float:
        if not self.plan.helps:
            raise InputError("Nothing was found that would help this plan.")
        return self.plan.helps[0].gain

    def help_rows(self) -> list[Part]:
        return [
            Part(change.change, amount(change.gain, "share", "helps", f"{change.gain:+.0%}"), change.needs)
            for change in self.plan.helps
        ]

    @property
    def measured(self) -> Any:
        if self.report.measured is None:
            raise InputError("No measured step was given.")
        return self.report.measured

    def suspect_rows(self) -> list[Part]:
        suspects = self.measured.suspects
        return [Part(suspect.cause, amount(suspect.step_s, "s", "measured"), suspect.look) for suspect in suspects]

    # memory

    def memory_rows(self) -> list[Part]:
        rows: list[Part] = []
        for part in self.plan.memory:
            if part.bytes > 0:
                rows.append(Part(part.name, amount(part.bytes, "bytes", f"memory:{part.name}")))
        return rows

    def memory_formulas(self) -> NumberFormulas:
        return self.lettered([*self.letters.memory_lines()])

    def limit_facts(self) -> list[str]:
        # what a program sees of the memory; chips without that fact give all of it
        visible, capacity = "memory.hbm.visible", "memory.hbm.capacity"
        return [visible if visible in self.chip.facts else capacity, capacity]


class _Term:
    """The lines of the ledger that are counted under one name."""

    def __init__(self, of: TrainNumbers, name: str) -> None:
        terms = {term.name: term for term in of.plan.terms}
        if name not in terms:
            raise unknown("term of this plan called", name, terms)
        self.of, self.name, self.term, self.title = of, name, terms[name], titled(name)
        self.lines = [line for line in of.report.ledger.lines if line.term == name]
        self.moves = any(line.moves for line in self.lines)
        self.kind = "moves between chips" if self.moves else "kernels"
        self.many = plural(len(self.lines), "line")

    def tables(self) -> list[LineTable]:
        return [*constants_table(self.of.job, self.name), line_table(self.lines)]

    def compared(self) -> Comparison:
        """The term at datasheet rates, as expected, and the parts of that which are exposed and hidden."""
        term, why = self.term, f"term:{self.name}"
        hidden_s = max(term.expected_s - term.exposed_s, 0.0)
        times = ""
        if min(term.expected_s, term.lower_s) > 0:
            times = f"{term.expected_s / term.lower_s:.2f} times its bound"
        rows = [
            Part("at datasheet rates", amount(term.lower_s, "s", why)),
            Part("expected", amount(term.expected_s, "s", why), times),
            Part("exposed: the step waits for it", amount(term.exposed_s, "s", why)),
            Part("hidden under compute", amount(hidden_s, "s", why)),
        ]
        overlapped = ""
        if hidden_s > 0:
            overlapped = f" The stack {self.of.job.stack.name} runs {render(hidden_s, 's')} of it under compute."
        if self.moves:
            return Comparison.of(networks_measured(self.of.chip, self.of.job.transport), rows, overlapped)
        return Comparison.of(self.of.kernels(), rows, overlapped)

    def formulas(self) -> NumberFormulas:
        """What the term counts and its bound, over letters."""
        ledger, lines = self.of.letters.verdict.ledger, []
        for key, quantity, unit in (*QUANTITIES, ("bound_s", "seconds at datasheet rates", "s")):
            total = ledger.by("term", key).get(self.name, 0.0)
            if float(total):
                lines.append(self.of.letters.say(quantity, total, unit))
        otherwise = "This term has no bound: it is what the stack's constants add, which the table tells."
        return self.of.lettered(lines, otherwise)


class _Held:
    """One part of memory, tensor by tensor."""

    def __init__(self, of: TrainNumbers, name: str) -> None:
        parts = {part.name: part.bytes for part in of.plan.memory}
        if name not in parts:
            raise unknown("part of this plan's memory called", name, parts)
        self.of, self.name, self.bytes, self.title = of, name, parts[name], titled(name)
        # the ledger's parts are finer than those that answers name
        self.lines = [line for line in of.report.ledger.held if MEMORY_NAMES.get(line.part, line.part) == name]
        self.many = plural(len(self.lines), "tensor")

    def tables(self) -> list[LineTable]:
        return [held_table(self.lines, amount(self.bytes, "bytes", f"memory:{self.name}"))]

    def formulas(self) -> NumberFormulas:
        return self.of.lettered(
            [*self.of.letters.memory_lines(part=self.name)], "It is not sized by letters of the plan."
        )


class _Sent:
    """Bytes over an axis, by the collectives that send them."""

    def __init__(self, of: TrainNumbers, name: str) -> None:
        self.of, self.name = of, name
        moves = [line for line in of.report.ledger.lines if line.moves]
        # an axis by itself (`fsdp`) or a set of axes that a collective spans (`context+fsdp`)
        self.lines = [line for line in moves if name in ("+".join(sorted(line.axes)), *line.axes)]
        if not self.lines:
            raise unknown("mesh axis that something is sent over called", name, of.plan.sent_bytes)
        self.many = len(self.lines)
        self.bytes = sum(float(line.total("wire_bytes")) for line in self.lines)

    def tables(self) -> list[DerivationStep | LineTable]:
        """A step for each collective over the axis, then the ledger's lines."""
        degrees = vars(self.of.plan.plan)
        axes = [axis for axis in mesh_axes(degrees, self.of.report.ledger.lines) if axis.name == self.name]
        tables: list[DerivationStep | LineTable] = []
        for move in itertools.chain.from_iterable(axis.moves for axis in axes):
            rows = [
                Part("bytes", amount(move.bytes, "bytes")),
                Part("expected", amount(move.seconds, "s")),
                Part("exposed", amount(move.exposed, "s")),
            ]
            tables.append(DerivationStep(move.name, rows))
        return [*tables, line_table(self.lines)]

    def formulas(self) -> NumberFormulas:
        return self.of.lettered([*self.of.letters.sent_lines(self.name)])
