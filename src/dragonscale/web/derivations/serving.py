"""Numbers of a serving configuration derived: what a request waits for, an iteration from its terms, memory, rates and
dollars."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.app.explain.serve import LetteredPhase, lettered_phase
from dragonscale.app.serve.config import (
    PROMPT_SCORES,
    STEP_SCORES,
    bills_of,
    deployment_of,
    iterations,
    prompt_chunks,
    wire_name,
)
from dragonscale.app.serve.records import ConfigReport, ServeReport, StepTerm
from dragonscale.app.serve.sheet import error_text
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.formats import Formats
from dragonscale.serving.frontier import judge
from dragonscale.serving.phases import prefill
from dragonscale.serving.space import Lot, stack
from dragonscale.serving.steady import Steady
from dragonscale.web.amounts import amount
from dragonscale.web.derivations.ledger_tables import line_table
from dragonscale.web.derivations.letters import letters_of
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, row, step
from dragonscale.web.derivations.profiles import USED, kernel_sentence, network_sentence
from dragonscale.web.derivations.serving_moves import limit_facts, limit_formulas, sent_facts, sent_formulas
from dragonscale.web.derivations.serving_rates import RATES, rate_facts, rate_formulas
from dragonscale.web.derivations.serving_waits import beside_facts, tpot_facts, tpot_formulas, ttft_facts, ttft_formulas
from dragonscale.web.page_request import PageRequest

DOCS = ("serving", "why")
_SOLVED = ("decode_step_s", "lower_s", "roofline_s", "tpot_s", "batch", "max_batch", "output_tokens_per_s_per_chip")
"""Numbers that a crossover is told with."""


@dataclass(frozen=True)
class ServeNumbers:
    """A configuration of an answer, and what its numbers are derived from."""

    report: ServeReport
    one: ConfigReport

    @functools.cached_property
    def deployment(self) -> Deployment:
        return deployment_of(self.report.asked, self.one)

    @property
    def chip(self) -> Chip:
        return self.deployment.piece.chip

    @functools.cached_property
    def state(self) -> Steady:
        """The steady state that the report's times are read off."""
        asked, plan = self.report.asked, self.deployment.plan
        formats = Formats(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)
        lot = Lot((self.deployment.piece,), stack([plan], formats, plan.spread))
        found = judge(asked.model, lot, self.deployment.engine, asked.ask, [self.one.batch], asked.draft)
        match = [config for config in found if config.drafts == self.one.drafts] or found
        if not match:
            raise InputError("The configuration has no steady state to derive its times from.")
        return match[0].state

    def bill(self, phase: str) -> Ledger:
        found = bills_of(self.report)
        if phase not in found:
            raise InputError("One output token has no decode step: it is the prefill's.")
        return found[phase]

    def facts(self, number: str) -> Piece:
        return self._of(number)[0]()

    def formula(self, number: str) -> Piece:
        return self._of(number)[1]()

    def _of(self, number: str) -> tuple[Callable[[], Piece], Callable[[], Piece]]:
        kind, _, name = number.partition(":")
        pair = functools.partial
        if kind == "term":
            return pair(self._term, "decode", name), pair(self._term_formulas, "decode", name)
        if kind == "prefill":
            return pair(self._term, "prefill", name), pair(self._term_formulas, "prefill", name)
        if kind == "sent":
            return pair(sent_facts, self, name), pair(sent_formulas, self, name)
        if kind == "limit":
            return pair(limit_facts, self, name), pair(limit_formulas, self, name)
        if kind == "memory" or number in RATES:
            return pair(rate_facts, self, number), pair(rate_formulas, self, number)
        known: dict[str, tuple[Callable[[], Piece], Callable[[], Piece]]] = {
            "ttft_s": (pair(ttft_facts, self), pair(ttft_formulas, self)),
            "tpot_s": (pair(tpot_facts, self), pair(tpot_formulas, self)),
            "decode_step_s": (pair(self._step, "decode"), pair(self._step_formulas, "decode")),
            "roofline_s": (self._roofline, pair(self._step_formulas, "decode")),
            "lower_s": (self._lower, pair(self._step_formulas, "decode")),
            "prefill_alone_s": (pair(self._step, "prefill"), pair(self._step_formulas, "prefill")),
            "prefill_s": (pair(beside_facts, self), pair(self._step_formulas, "prefill")),
        }
        if number not in known:
            raise unknown(
                "number of a serving plan called", number, [*known, *RATES, "term:…", "prefill:…", "memory:…", "sent:…"]
            )
        return known[number]

    @property
    def where(self) -> str:
        return f"{self.one.plan} on {self.one.copy_slice} by {self.one.engine}, {self.one.batch:,} requests in flight"

    def banded(self, value: float, low: float | None, high: float | None, unit: str = "s") -> str:
        rests = error_text(self.report, self.one)
        return (
            rests
            if low is None or high is None
            else f"{render(low, unit)} to {render(high, unit)} around {render(value, unit)}: {rests}"
        )

    # an iteration

    def _terms(self, phase: str) -> list[StepTerm]:
        return self.one.terms if phase == "decode" else self.one.prefill_terms

    def _step(self, phase: str) -> Piece:
        one, terms, kind = self.one, self._terms(phase), "term" if phase == "decode" else "prefill"
        exposed = self.bill(phase).by("term", "exposed_s")
        rows = [
            row(name, amount(float(value), "s", f"{kind}:{name}"))
            for name, value in sorted(exposed.items(), key=lambda pair: -float(pair[1]))
            if float(value) > 0
        ]
        seconds = one.decode_step_s if phase == "decode" else sum(term.expected_s for term in terms)
        why = "decode_step_s" if phase == "decode" else "prefill_alone_s"
        total = amount(seconds, "s", why)
        work = self.report.workload
        what = (
            f"a decode step of {one.batch:,} sequences of {work.prompt + work.output // 2:,} tokens"
            if phase == "decode"
            else f"a prompt of {work.prompt:,} tokens alone"
        )
        compared, sources = self._differs(phase, seconds)
        title = "Decode step" if phase == "decode" else "A prompt alone"
        return facts(
            title,
            f"How long {what} is expected to take, with {self.where}.",
            total,
            steps=[step("What it waits for", rows, total)],
            compared=compared,
            error=error_text(self.report, one),
            sources=[*sources, *chip_sources(self.chip, USED)],
            docs=DOCS,
        )

    def _differs(self, phase: str, seconds: float) -> tuple[Piece, list[Piece]]:
        kernels, first = kernel_sentence(self.chip, "", ("matmul", "decode" if phase == "decode" else "attention"))
        networks, second = network_sentence(self.chip)
        bound = sum(term.roofline_s for term in self._terms(phase))
        rows = [
            row("kernel by kernel at datasheet rates", amount(bound, "s", "roofline_s" if phase == "decode" else "")),
            row("expected", amount(seconds, "s"), f"{seconds / bound:.2f} times that" if bound else ""),
        ]
        if phase == "decode":
            rows.insert(0, row("at best (all overlaps)", amount(self.one.lower_s, "s", "lower_s")))
        moves = self.deployment.plan.chips > 1
        own = f"The engine {self.one.engine} adds the host's work, launch gaps and sampling."
        return {"rows": rows, "text": " ".join([kernels, *([networks] if moves else []), own])}, [
            *first,
            *(second if moves else []),
        ]

    def _roofline(self) -> Piece:
        rows = [
            row(term.name, amount(term.roofline_s, "s", f"term:{term.name}"))
            for term in self.one.terms
            if term.roofline_s > 0
        ]
        total = amount(self.one.roofline_s, "s", "roofline_s")
        sentence = (
            "A decode step at datasheet rates, kernel after kernel: each takes as long as its FLOPs or its bytes do."
        )
        return facts(
            "Decode step by rooflines",
            sentence,
            total,
            steps=[step("Every term at datasheet rates", rows, total)],
            sources=chip_sources(self.chip, USED),
            docs=("rooflines", ""),
        )

    def _lower(self) -> Piece:
        total = amount(self.one.lower_s, "s", "lower_s")
        rows = [
            row("kernel by kernel", amount(self.one.roofline_s, "s", "roofline_s")),
            row("expected", amount(self.one.decode_step_s, "s", "decode_step_s")),
        ]
        sentence = (
            "The shortest that a decode step can be: the busiest of compute, HBM and each network, everything else "
            "hidden under it."
        )
        return facts(
            "Decode step at best",
            sentence,
            total,
            steps=[step("Beside", rows)],
            sources=chip_sources(self.chip, USED),
            docs=DOCS,
        )

    # letters

    def phases(self, phase: str) -> list[tuple[float, LetteredPhase]]:
        """The iterations of a phase over letters, with how often each runs; made once."""
        kept = vars(self).setdefault("kept_phases", {})
        if phase not in kept:
            kept[phase] = self._phases(phase)
        return kept[phase]

    def _phases(self, phase: str) -> list[tuple[float, LetteredPhase]]:
        asked = self.report.asked
        if phase == "decode":
            return [
                (
                    1.0,
                    lettered_phase(
                        "decode", self.deployment, iterations(asked, self.one.batch, self.deployment)["decode"]
                    ),
                )
            ]
        chunks = prompt_chunks(asked, self.deployment)
        return [
            (times, lettered_phase("prefill", self.deployment, prefill(tokens, 1, past)))
            for times, tokens, past in chunks
        ]

    def _named(self, found: LetteredPhase) -> dict[str, Any]:
        scores = STEP_SCORES if found.name == "decode" else PROMPT_SCORES
        names = {"scores": scores, "attention": "attention projections"}
        terms: dict[str, Any] = {names.get(name, name): term.roofline for name, term in found.cost.terms.items()}
        for axes, wire in found.cost.wires.items():
            terms[wire_name(axes)] = terms.get(wire_name(axes), 0) + wire.lower
        return terms

    def _step_formulas(self, phase: str) -> Piece:
        lines, letters = list[FormulaLine](), list[Piece]()
        for times, found in self.phases(phase):
            often = f", {times:g} times" if times != 1 else ""
            lines += [
                found.say(f"{name}, at datasheet rates{often}", value, "s")
                for name, value in self._named(found).items()
                if value > 0
            ]
            letters += self.lettered(found)
        return formulas(lines, letters)

    def lettered(self, found: LetteredPhase) -> list[Piece]:
        work = {
            "B": "sequences that decode at once" if found.name == "decode" else "prompts at once",
            "T": "new tokens of a prompt",
            "S": "tokens that a sequence holds, the new one included",
        }
        return list(letters_of(found.letters.values, self.chip, self.report.model, work))

    def crossovers(self, number: str) -> list[str]:
        """The limits of this configuration, solved from its own iterations."""
        if number not in _SOLVED:
            return []
        return [f"{limit.name} ({limit.counts}): {limit.formula} = {limit.value:,.6g}" for limit in self.report.limits]

    def _term(self, phase: str, name: str) -> Piece:
        terms = {term.name: term for term in self._terms(phase)}
        ledger = self.bill(phase)
        lines = [line for line in ledger.lines if line.term == name]
        if not lines:
            raise unknown(f"term of the {phase} called", name, {line.term for line in ledger.lines})
        kind = "term" if phase == "decode" else "prefill"
        exposed, expected, bound = (
            float(ledger.by("term", key)[name]) for key in ("exposed_s", "expected_s", "bound_s")
        )
        number = amount(exposed, "s", f"{kind}:{name}")
        moves = any(line.moves for line in lines)
        text, sources = network_sentence(self.chip) if moves else kernel_sentence(self.chip, "", ("matmul", "decode"))
        rows = [
            row("at datasheet rates", amount(bound, "s")),
            row(
                "expected",
                amount(expected, "s"),
                f"{expected / bound:.2f} times its bound" if bound and expected else "",
            ),
            row("exposed", number),
            row("hidden under other work", amount(max(expected - exposed, 0.0), "s")),
        ]
        of = "a decode step" if phase == "decode" else "a prompt"
        known = terms.get(name)
        told = f", {render(known.bytes, 'bytes')} and {render(known.flops, 'FLOP')}" if known is not None else ""
        return facts(
            name.capitalize(),
            f"What is counted under “{name}” in {of}: {len(lines)} lines of the ledger{told}.",
            number,
            steps=[line_table(lines)],
            compared={"rows": rows, "text": text},
            error=error_text(self.report, self.one),
            sources=[*sources, *chip_sources(self.chip, USED)],
            docs=DOCS,
        )

    def _term_formulas(self, phase: str, name: str) -> Piece:
        lines, letters = list[FormulaLine](), list[Piece]()
        for times, found in self.phases(phase):
            value = self._named(found).get(name)
            if value is not None and value > 0:
                often = f", {times:g} times" if times != 1 else ""
                lines.append(found.say(f"seconds at datasheet rates{often}", value, "s"))
                letters += self.lettered(found)
        none = "This term has no bound: it is what the engine's constants add."
        return formulas(lines, letters, notes=[] if lines else [none])


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any]) -> ServeNumbers:
    """The first configuration of an answer."""
    record = asked.ask(of, fields, brief=False)
    if not record.configs:
        raise InputError("There is no configuration, so there is nothing to derive.")
    return vars(record).setdefault("derived", ServeNumbers(record, record.configs[0]))
