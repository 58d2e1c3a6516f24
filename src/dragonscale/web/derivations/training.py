"""Numbers of a training plan derived: the step from its terms, a term from its lines, memory from its tensors, the run
from the step."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.app.train.plans import HELD
from dragonscale.app.train.records import PlanReport, TrainReport
from dragonscale.app.train.slices import chosen_slice
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.training.evaluation import Job
from dragonscale.training.plan import Plan, short_plan
from dragonscale.web.amounts import amount, count, share
from dragonscale.web.derivations.ledger_tables import line_table
from dragonscale.web.derivations.letters import letters_of
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, row, step, titled
from dragonscale.web.derivations.profiles import kernel_sentence, network_sentence
from dragonscale.web.derivations.stack_constants import constants_of
from dragonscale.web.derivations.training_others import JUDGED, efficiency_facts, helps_facts, measured_facts
from dragonscale.web.derivations.training_sums import held_facts, memory_facts, run_facts, run_formulas, sent_facts
from dragonscale.web.page_request import PageRequest

STEP_DOCS = ("how-a-step-is-predicted", "")


@dataclass(frozen=True)
class TrainNumbers:
    """A plan of an answer, and what its numbers are derived from."""

    report: TrainReport
    one: PlanReport

    @functools.cached_property
    def job(self) -> Job:
        asked = self.report.asked
        return asked.job(chosen_slice(asked, self.report))

    @property
    def chip(self) -> Chip:
        return self.job.slice.chip

    @property
    def plan(self) -> Plan:
        return self.one.plan

    @functools.cached_property
    def ledger(self) -> Ledger:
        return self.report.ledger

    @functools.cached_property
    def letters(self) -> Any:
        from dragonscale.app.explain.train import StepFormulas

        return StepFormulas.of(self.job, self.plan)

    def facts(self, number: str) -> Piece:
        return self._of(number)[0]()

    def formula(self, number: str) -> Piece:
        return self._of(number)[1]()

    def _of(self, number: str) -> tuple[Callable[[], Piece], Callable[[], Piece]]:
        """The functions that give both halves of a derivation."""
        kind, _, name = number.partition(":")
        if kind == "term":
            return functools.partial(self._term, name), functools.partial(self._term_formulas, name)
        if kind == "memory":
            return functools.partial(self._held, name), functools.partial(self._held_formulas, name)
        if kind == "efficiency":
            return functools.partial(efficiency_facts, self, number, name), self._tokens_formulas
        if kind == "sent":
            return functools.partial(self._sent, name), functools.partial(self._sent_formulas, name)
        known: dict[str, tuple[Callable[[], Piece], Callable[[], Piece]]] = {
            "step_s": (self._step, self._step_formulas),
            "lower_s": (self._lower, self._step_formulas),
            "upper_s": (self._upper, self._step_formulas),
            "mfu": (self._mfu, self._mfu_formulas),
            "tokens_per_s_per_chip": (self._tokens, self._tokens_formulas),
            "hbm_bytes": (functools.partial(memory_facts, self), self._memory_formulas),
            "hbm_limit_bytes": (self._limit, formulas_none),
            "days": (functools.partial(run_facts, self, "days"), functools.partial(run_formulas, self)),
            "helps": (functools.partial(helps_facts, self), formulas_none),
            "measured": (functools.partial(measured_facts, self), formulas_none),
            "cost_usd": (functools.partial(run_facts, self, "cost_usd"), functools.partial(run_formulas, self)),
        }
        if number not in known:
            raise unknown("number of a training plan called", number, [*known, "term:…", "memory:…", "sent:…"])
        return known[number]

    # the step

    def _where(self) -> str:
        return f"{short_plan(self.plan)} on {self.job.slice} with {self.job.stack.name}"

    def _differs(self) -> tuple[Piece, list[Piece]]:
        """Bound and expectation side by side, why they differ, and the sources of that."""
        kernels, first = kernel_sentence(self.chip, self.job.stack.kernels.library)
        networks, second = network_sentence(self.chip, self.job.transport)
        overlap = self.job.stack.overlap
        hides = (
            f"What the stack {self.job.stack.name} hides under compute: {overlap.weight:.0%} of weight gathers "
            "and scatters, "
            f"{overlap.gradient:.0%} of the gradients' sum, {overlap.tensor:.0%} of tensor collectives; the rest "
            "is exposed."
        )
        one = self.one
        rows = [
            row("at best (all overlaps, datasheet rates)", amount(one.lower_s, "s", "lower_s")),
            row("expected", amount(one.step_s, "s", "step_s")),
            row("without overlap (datasheet rates)", amount(one.upper_s, "s", "upper_s")),
        ]
        sources = [*first, *(second if one.sent_bytes else [])]
        text = " ".join([kernels, networks, hides] if one.sent_bytes else [kernels])
        return {"rows": rows, "text": text}, sources

    @property
    def band(self) -> str:
        one = self.one
        return f"{one.band}: {render(one.step_low_s, 's')} to {render(one.step_high_s, 's')} here."

    def _step(self) -> Piece:
        one = self.one
        compared, sources = self._differs()
        rows = [
            row(term.name, amount(term.exposed_s, "s", f"term:{term.name}")) for term in one.terms if term.exposed_s > 0
        ]
        total = amount(one.step_s, "s", "step_s")
        sentence = f"How long one step of {self._where()} is expected to take: what is exposed of each term, added up."
        return facts(
            "Step time",
            sentence,
            total,
            steps=[step("What the step waits for", rows, total)],
            compared=compared,
            error=self.band,
            sources=[*sources, *chip_sources(self.chip, self._facts_used())],
            docs=STEP_DOCS,
        )

    def _facts_used(self) -> list[str]:
        return [f"matrix.{self.plan.dtype}", "memory.hbm.bandwidth", "ici.link", "levels.node.bandwidth"]

    def _lower(self) -> Piece:
        from dragonscale.training.step_ledger import WIRES

        bound = self.ledger.by("term", "bound_s")
        compute = {
            name: float(one) for name, one in bound.items() if name not in (*WIRES, "optimizer") and float(one) > 0
        }
        rows = [row(name, amount(one, "s", f"term:{name}")) for name, one in compute.items()]
        wires = [
            row(name, amount(float(one), "s", f"term:{name}"))
            for name, one in bound.items()
            if name in (*WIRES, "optimizer") and float(one) > 0
        ]
        total = amount(self.one.lower_s, "s", "lower_s")
        sentence = (
            "The shortest that the step can be at datasheet rates: the busiest resource, everything else hidden "
            "under it."
        )
        steps = [
            step("Compute at datasheet rates", rows, amount(sum(compute.values()), "s")),
            step("Each kind of move, and the update", wires, total, "The bound is the largest of compute and these."),
        ]
        return facts(
            "Step at best",
            sentence,
            total,
            steps=steps,
            docs=STEP_DOCS,
            sources=chip_sources(self.chip, self._facts_used()),
        )

    def _upper(self) -> Piece:
        rows = [
            row(term.name, amount(term.lower_s, "s", f"term:{term.name}"))
            for term in self.one.terms
            if term.lower_s > 0
        ]
        total = amount(self.one.upper_s, "s", "upper_s")
        sentence = "How long the step takes at datasheet rates if nothing overlaps: all terms one after the other."
        return facts(
            "Step without overlap",
            sentence,
            total,
            steps=[step("Every term at datasheet rates", rows, total)],
            sources=chip_sources(self.chip, self._facts_used()),
            docs=STEP_DOCS,
        )

    def _step_formulas(self) -> Piece:
        found = self.letters
        bound = found.verdict.ledger.by("term", "bound_s")
        order = [term.name for term in self.one.terms if term.name in bound and float(bound[term.name]) > 0]
        lines = [found.say(f"{name}, at datasheet rates", bound[name], "s") for name in order]
        exposed = [term for term in self.one.terms if term.exposed_s > 0]
        names = [f"'{term.name}'" for term in exposed]
        total = FormulaLine(
            "step = what is exposed of each term",
            " + ".join(names),
            " + ".join(f"{term.exposed_s:.4g}" for term in exposed),
            render(self.one.step_s, "s", 4),
            self.one.step_s,
            "s",
        )
        return formulas([total, *lines], self._letters())

    def _letters(self) -> list[Piece]:
        return list(letters_of(self.letters.letters.values, self.chip, self.report.model))

    def crossovers(self, number: str) -> list[str]:
        """Where the step, or one of its kinds of moves, becomes bound by the network instead of compute."""
        term = number.partition(":")[2] if number.startswith("term:") else ""
        wires = any(line.moves for line in self.ledger.lines if line.term == term)
        if number not in ("step_s", "lower_s", "upper_s", "mfu") and not wires:
            return []
        return [text for name, text in self._solved if term in ("", name)]

    @functools.cached_property
    def _solved(self) -> list[tuple[str, str]]:
        """Crossovers in the batch, by term and in words."""
        from dragonscale.app.explain.train import crossing_sentence
        from dragonscale.training.crossings import crossings

        found = self.letters
        solved = crossings(found.verdict, found.letters, ["batch"], self.plan)
        exposed = self.ledger.by("term", "exposed_s")
        return [
            (one.term, f"{crossing_sentence(one, float(exposed.get(one.term, 0.0)), self.job.stack.name)}.")
            for one in solved
        ]

    # one term

    def _term(self, name: str) -> Piece:
        terms = {term.name: term for term in self.one.terms}
        if name not in terms:
            raise unknown("term of this plan called", name, terms)
        one = terms[name]
        lines = [line for line in self.ledger.lines if line.term == name]
        hidden = max(one.expected_s - one.exposed_s, 0.0)
        why = f"term:{name}"
        kernels, first = kernel_sentence(self.chip, self.job.stack.kernels.library)
        networks, second = network_sentence(self.chip, self.job.transport)
        moves = any(line.moves for line in lines)
        rows = [
            row("at datasheet rates", amount(one.lower_s, "s", why)),
            row("expected", amount(one.expected_s, "s", why), _times(one.expected_s, one.lower_s)),
            row("exposed: the step waits for it", amount(one.exposed_s, "s", why)),
            row("hidden under compute", amount(hidden, "s", why)),
        ]
        what = "moves between chips" if moves else "kernels"
        sentence = (
            f"The {what} counted under “{name}” in a step of {self._where()}: {len(lines)} "
            f"line{'s' * (len(lines) != 1)} of the plan's ledger."
        )
        text = networks if moves else kernels
        if hidden > 0:
            text += f" The stack {self.job.stack.name} runs {render(hidden, 's')} of it under compute."
        return facts(
            titled(name),
            sentence,
            amount(one.exposed_s, "s", why),
            steps=[*constants_of(self.job, name), line_table(lines)],
            compared={"rows": rows, "text": text},
            error=self.band,
            sources=[*(second if moves else first), *chip_sources(self.chip, self._facts_used())],
            docs=STEP_DOCS,
        )

    def _term_formulas(self, name: str) -> Piece:
        found, lines = self.letters, list[FormulaLine]()
        for key, words, unit in (
            ("flops", "FLOPs", "FLOP"),
            ("hbm_bytes", "bytes of HBM", "bytes"),
            ("wire_bytes", "bytes sent", "bytes"),
            ("bound_s", "seconds at datasheet rates", "s"),
        ):
            total = found.verdict.ledger.by("term", key).get(name)
            if total is not None and float(total):
                lines.append(found.say(words, total, unit))
        none = "This term has no bound: it is what the stack's constants add, which the table tells."
        return formulas(lines, self._letters(), notes=[] if lines else [none])

    # efficiency

    def _mfu(self) -> Piece:
        one, job = self.one, self.job
        number = share(one.mfu, "mfu")
        rows = [
            row(
                "model FLOPs of a step",
                amount(job.model_flops, "FLOP"),
                "forward and backward, causal attention, no recomputation",
            ),
            row("step", amount(one.step_s, "s", "step_s")),
            row("chips", count(job.slice.chips)),
            row("peak of a chip", amount(one.peak_flops, "FLOP/s"), one.mfu_peak),
        ]
        done = amount(one.flops, "FLOP")
        text = (
            f"The chip itself computes {done['text']} a step, recomputation and padding included, which the MFU does "
            "not count."
        )
        sentence = "Model FLOPs utilisation: the part of the chips' peak that goes into the model's own FLOPs."
        return facts(
            "MFU",
            sentence,
            number,
            steps=[step("Put together from", rows, number, text)],
            error=self.band,
            sources=chip_sources(self.chip, ["matrix.bf16"]),
            docs=STEP_DOCS,
        )

    def _mfu_formulas(self) -> Piece:
        job, one = self.job, self.one
        numbers = f"{job.model_flops:.6g}/({one.step_s:.6g}*{job.slice.chips}*{one.peak_flops:.6g})"
        line = FormulaLine("MFU", "F_model/(t_step*n_chips*C)", numbers, f"{one.mfu:.4g}", one.mfu, "share")
        per = job.model_flops / job.tokens
        parameters = self.report.workload.parameters
        note = f"F_model is {render(per, 'FLOP')} a token: {per / parameters:.3g} times its {parameters:,} parameters."
        return formulas([line], notes=[note])

    def _tokens(self) -> Piece:
        one, job = self.one, self.job
        number = count(one.tokens_per_s_per_chip, "tokens_per_s_per_chip")
        rows = [
            row("tokens of a step", count(job.tokens), f"{job.batch:,} sequences of {job.sequence:,}"),
            row("step", amount(one.step_s, "s", "step_s")),
            row("chips", count(job.slice.chips)),
        ]
        return facts(
            "Tokens per second of a chip",
            "Tokens of a step over its time and its chips.",
            number,
            steps=[step("Put together from", rows, number)],
            error=self.band,
            docs=STEP_DOCS,
            sources=[JUDGED],
        )

    def _tokens_formulas(self) -> Piece:
        job, one = self.job, self.one
        numbers = f"{job.batch}*{job.sequence}/({one.step_s:.6g}*{job.slice.chips})"
        value = f"{one.tokens_per_s_per_chip:,.4g}"
        return formulas(
            [FormulaLine("tokens/s per chip", "B*T/(t_step*n_chips)", numbers, value, one.tokens_per_s_per_chip, "")]
        )

    def _memory_formulas(self) -> Piece:
        held = self.letters.verdict.ledger.memory
        lines = [
            self.letters.say(HELD.get(part, part), size, "bytes") for part, size in held.items() if float(size) > 0
        ]
        return formulas(lines, self._letters())

    def _held(self, name: str) -> Piece:
        return held_facts(self, name)

    def _held_formulas(self, name: str) -> Piece:
        held = self.letters.verdict.ledger.memory
        lines = [self.letters.say(name, size, "bytes") for part, size in held.items() if HELD.get(part, part) == name]
        return formulas(lines, self._letters(), notes=[] if lines else ["It is not sized by letters of the plan."])

    def _limit(self) -> Piece:
        number = amount(self.one.hbm_limit_bytes, "bytes", "hbm_limit_bytes")
        path = "memory.hbm.visible" if "memory.hbm.visible" in self.chip.facts else "memory.hbm.capacity"
        sentence = f"What a program finds of the {self.chip.title}'s HBM, without what the runtime keeps."
        capacity = self.chip.memory["hbm"].capacity
        rows = [row("HBM of the chip", amount(capacity, "bytes")), row("a program finds", number)]
        return facts(
            "Memory of a chip",
            sentence,
            number,
            steps=[step("Beside its datasheet", rows)],
            more=False,
            sources=chip_sources(self.chip, [path, "memory.hbm.capacity"]),
            docs=("chips", ""),
        )

    def _sent(self, name: str) -> Piece:
        return sent_facts(self, name)

    def _sent_formulas(self, name: str) -> Piece:
        found = self.letters
        sent = [
            (axes, size) for axes, size in found.verdict.ledger.sent_bytes.items() if name in ("+".join(axes), *axes)
        ]
        lines = [found.say(f"bytes sent over {'+'.join(axes)}", size, "bytes") for axes, size in sent]
        return formulas(lines, self._letters())


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any]) -> TrainNumbers:
    """The first plan of an answer."""
    record = asked.ask(of, fields, brief=False)
    if not record.plans:
        raise InputError("There is no plan, so there is nothing to derive.")
    kept = vars(record)  # beside its fields: the next number of the same answer finds its letters there
    return kept.setdefault("derived", TrainNumbers(record, record.plans[0]))


def formulas_none() -> Piece:
    """A number that is read off, not worked out."""
    return formulas([])


def _times(expected: float, bound: float) -> str:
    return f"{expected / bound:.2f} times its bound" if bound > 0 and expected > 0 else ""
