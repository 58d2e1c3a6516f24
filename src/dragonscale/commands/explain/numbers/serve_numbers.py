"""Numbers of a serving configuration: what a request waits for, an iteration from its terms, memory, rates and
dollars."""

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.blocks.amounts import amount, hour_text
from dragonscale.commands.explain.formulas import FormulaLine
from dragonscale.commands.explain.numbers.ledger_tables import held_table, line_table
from dragonscale.commands.explain.numbers.number_table import Numbers
from dragonscale.commands.explain.numbers.records import (
    Comparison,
    LineTable,
    NumberFormulas,
    Part,
    price_text,
    term_rows,
)
from dragonscale.commands.explain.serve import LetteredPhase, lettered_phase
from dragonscale.commands.serve.config import bills_of, deployment_of
from dragonscale.commands.serve.serve_blocks import error_text
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.provenance import RATE_FACTS, kernels_measured, networks_measured
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.letter_meanings import Letter, letter_meanings
from dragonscale.serving.advice.bills import (
    PROMPT_SCORES,
    STEP_SCORES,
    held_bill,
    iterations,
    prompt_chunks,
    wire_name,
)
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import prefill
from dragonscale.serving.space.frontier import WATERMARK
from dragonscale.serving.steady.steady import Steady

_SOLVED = ("decode_step_s", "lower_s", "roofline_s", "tpot_s", "batch", "max_batch", "output_tokens_per_s_per_chip")
"""Numbers beside which the limits of the configuration are listed."""
_PARTS = {
    "weights": ("weights_bytes", ""),
    "KV cache": ("cache_bytes", "The caches of {} sequences of full length."),
    "workspace": ("working_bytes", ""),
    "reserve": ("reserve_bytes", "What the engine and the runtime keep for themselves."),
    "free for KV cache": ("free_bytes", "What the engine sets aside for caches and this batch does not fill."),
    "left by the engine": (
        "left_alone_bytes",
        "What the engine does not touch of the chip's memory (its memory fraction).",
    ),
    "unused": ("left_alone_bytes", ""),
}
"""Parts of a chip's memory: the field of its use, and what it is where its tensors do not say."""


@dataclass(frozen=True)
class ServeNumbers(Numbers):
    """A configuration of an answer, and what its numbers are derived from."""

    report: ServeReport
    config: ConfigReport
    view: ClassVar[str] = "serve"
    what: ClassVar[str] = "number of a serving plan called"
    facts_used: ClassVar[tuple[str, ...]] = RATE_FACTS

    def names(self) -> dict[str, Any]:
        config, work, use = self.config, self.report.workload, self.config.memory
        length = work.prompt + work.output
        how = "expected by the planner's steady state"
        if config.simulated:
            how = "counted in a simulated run"
        asked = SimpleNamespace(
            requests=config.requests_per_s * config.copies,
            rate=work.rate_per_s or 0.0,
            replicas=config.replicas or 0,
            fleet_chips=config.fleet_chips or 0,
            hour=hour_text(config.fleet_usd_per_h),
            how=how,
            length=length,
            context=round(self.report.asked.ask.context),
            price=price_text(self.report.prices, self.chip),
        )
        room = SimpleNamespace(
            # the engine's own use knows the bytes as they lie in its pages
            token=use.token_bytes if use else config.kv_bytes_per_token,
            tokens=use.tokens if use else 0,
            sequence=use and use.sequence_bytes,
            whole=use and (use.sequence_bytes or use.token_bytes * length),
            cache=use and use.cache_bytes + use.free_bytes,
            batch=use and config.max_batch,
            watermark=WATERMARK,
            at_once=self.deployment.engine.scheduling.max_sequences * config.data,
            capacity=self.chip.memory["hbm"].capacity,
        )
        return {"of": self, "config": config, "work": work, "chip": self.chip, "room": room, "asked": asked}

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {
            "term": functools.partial(_Term, self, self.decode),
            "prefill": functools.partial(_Term, self, self.prefill),
            "memory": functools.partial(_Held, self),
            "sent": functools.partial(_Sent, self),
            "limit": functools.partial(_Limit, self),
        }

    @functools.cached_property
    def deployment(self) -> Deployment:
        return deployment_of(self.report.asked, self.config)

    @property
    def chip(self) -> Chip:
        return self.deployment.piece.chip

    @property
    def state(self) -> Steady:
        """The steady state that the report's times are read off."""
        return self.config.state

    @functools.cached_property
    def decode(self) -> "_Phase":
        return _Phase(self, "decode")

    @functools.cached_property
    def prefill(self) -> "_Phase":
        return _Phase(self, "prefill")

    def where(self) -> str:
        config = self.config
        return f"{config.plan} on {config.copy_slice} by {config.engine}, {config.batch:,} requests in flight"

    def networks(self) -> Comparison:
        return Comparison.of(networks_measured(self.chip))

    def prompt_kernels(self) -> Comparison:
        return Comparison.of(kernels_measured(self.chip, "", ("matmul", "attention")))

    # how sure

    def error(self) -> str:
        return error_text(self.report, self.config)

    def ttft_band(self) -> str:
        return self._banded("ttft")

    def tpot_band(self) -> str:
        return self._banded("tpot")

    def _banded(self, name: str) -> str:
        low, high = getattr(self.config, f"{name}_low_s"), getattr(self.config, f"{name}_high_s")
        if low is None or high is None:
            return self.error()
        value_s = getattr(self.config, f"{name}_s")
        return f"{render(low, 's')} to {render(high, 's')} around {render(value_s, 's')}: {self.error()}"

    # what a request waits for

    @functools.cached_property
    def waits(self) -> SimpleNamespace:
        """What a request's times add up from; a step of drafts yields several tokens."""
        state = self.state
        why, note = "decode_step_s", "a step gives each sequence a token"
        if self.config.drafts:
            why, note = "", "a step over the tokens it yields"
        return SimpleNamespace(
            # the server's front, the step under way, the queue, the prompt's own prefill
            first=float(state.front) + float(state.under_way) + float(state.waiting) + float(state.prefill),
            met=float(state.met),
            # prefills of other requests that come between steps, spread over the tokens after the first
            met_s=float(state.added * state.met) / max(float(state.output) - 1, 1),
            why=why,
            note=note,
        )

    def peak(self) -> float:
        return self.chip.peak("bf16")

    def peak_rows(self) -> list[Part]:
        return [Part(name, amount(rate, "FLOP/s")) for name, rate in self.chip.matrix.items()]

    def peak_facts(self) -> list[str]:
        return [f"matrix.{name}" for name in self.chip.matrix]

    # memory

    def memory_rows(self) -> list[Part]:
        use = self.config.memory
        if use is None:
            return []
        # what the engine leaves alone is no part of what it uses
        used = itertools.islice(_PARTS.items(), 4)
        return [Part(name, amount(float(getattr(use, field)), "bytes", f"memory:{name}")) for name, (field, _) in used]

    def letters(self, phase: LetteredPhase) -> list[Letter]:
        """The letters of an iteration; B is of what it runs at once."""
        work = {
            "B": {"decode": "sequences that decode at once", "prefill": "prompts at once"}[phase.name],
            "T": "new tokens of a prompt",
            "S": "tokens that a sequence holds, the new one included",
        }
        return list(letter_meanings(phase.letters, self.chip, self.report.model, work))

    def crossovers(self, number: str) -> list[str]:
        """The limits of this configuration, solved from its own iterations."""
        if number not in _SOLVED:
            return []
        return [f"{limit.name} ({limit.counts}): {limit.formula} = {limit.value:,.6g}" for limit in self.report.limits]


class _Phase:
    """A decode step or a prompt that runs alone: its bill, and its iterations over letters with how often each runs."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        self.of, self.name, self.decodes = of, name, name == "decode"
        # `kind` begins the ids of its terms
        if self.decodes:
            self.kind, self.title = "term", "decode step"
            self.terms, self.seconds = of.config.terms, of.config.decode_step_s
        else:
            self.kind, self.title = "prefill", "prompt"
            self.terms = of.config.prefill_terms
            self.seconds = sum(term.expected_s for term in self.terms)
        self.bound_s = sum(term.roofline_s for term in self.terms)

    @property
    def bill(self) -> Ledger:
        bills = bills_of(self.of.report)
        if self.name not in bills:
            raise InputError("One output token has no decode step: it is the prefill's.")
        return bills[self.name]

    def rows(self) -> list[Part]:
        """What the iteration waits for, the longest first."""
        exposed = sorted(self.bill.by("term", "exposed_s").items(), key=lambda pair: -float(pair[1]))
        return term_rows(self.kind, exposed)

    def bound_rows(self) -> list[Part]:
        return term_rows(self.kind, ((term.name, term.roofline_s) for term in self.terms))

    def differs(self) -> Comparison:
        """Bound and expectation side by side, why they differ, and the sources of that."""
        config, chip = self.of.config, self.of.chip
        attention, why, times = "attention", "", ""
        rows: list[Part] = []
        if self.decodes:
            # attention over a cache is another kernel than that of a prompt
            attention, why = "decode", "roofline_s"
            rows.append(Part("at best (all overlaps)", amount(config.lower_s, "s", "lower_s")))
        kernels = kernels_measured(chip, "", ("matmul", attention))
        if self.bound_s:
            times = f"{self.seconds / self.bound_s:.2f} times that"
        rows.append(Part("kernel by kernel at datasheet rates", amount(self.bound_s, "s", why)))
        rows.append(Part("expected", amount(self.seconds, "s"), times))
        sentences, sources = [kernels.text], [*kernels.sources]
        if self.of.deployment.plan.chips > 1:
            networks = networks_measured(chip)
            sentences.append(networks.text)
            sources += networks.sources
        sentences.append(f"The engine {config.engine} adds the host's work, launch gaps and sampling.")
        return Comparison(" ".join(sentences), sources, rows)

    @functools.cached_property
    def lettered(self) -> list[tuple[float, LetteredPhase]]:
        """The iterations over letters, each with how often it runs: a long prompt is prefilled in chunks."""
        serve_asked = self.of.report.asked
        deployment = deployment_of(serve_asked, self.of.config, self.name)
        if self.decodes:
            iteration = iterations(serve_asked, self.of.config.batch, deployment)["decode"]
            return [(1.0, lettered_phase("decode", deployment, iteration))]
        phases: list[tuple[float, LetteredPhase]] = []
        for chunk in prompt_chunks(serve_asked, deployment):
            # one prompt alone, after the tokens of earlier chunks
            iteration = prefill(chunk.tokens, 1, chunk.past)
            phases.append((chunk.count, lettered_phase("prefill", deployment, iteration)))
        return phases

    def bounds(self, phase: LetteredPhase) -> dict[str, Any]:
        """Seconds at datasheet rates of each term of an iteration over letters."""
        names = {"scores": STEP_SCORES if self.decodes else PROMPT_SCORES, "attention": "attention projections"}
        terms: dict[str, Any] = {names.get(name, name): term.roofline for name, term in phase.cost.terms.items()}
        for axes, wire in phase.cost.wires.items():
            # collectives over several sets of axes may be counted under one name
            terms[wire_name(axes)] = terms.get(wire_name(axes), 0) + wire.lower
        return terms

    def formulas(self, term: str = "", otherwise: str = "") -> NumberFormulas:
        """The bounds of all terms as formulas, or of one."""
        lines, letters = list[FormulaLine](), list[Letter]()
        for times, phase in self.lettered:
            often = ""
            if times != 1:
                often = f", {times:g} times"
            for name, seconds in self.bounds(phase).items():
                if seconds > 0 and term in ("", name):
                    label = f"{name}, at datasheet rates"
                    if term:  # the page names it already
                        label = "seconds at datasheet rates"
                    lines.append(phase.say(f"{label}{often}", seconds, "s"))
            letters += self.of.letters(phase)
        return NumberFormulas.of(lines, dict.fromkeys(letters), otherwise)


class _Term:
    """The lines that are counted under one name in a decode step or a prompt."""

    def __init__(self, of: ServeNumbers, phase: _Phase, name: str) -> None:
        self.of, self.phase, self.name, self.title = of, phase, name, name[:1].upper() + name[1:]
        ledger = phase.bill
        self.lines = [line for line in ledger.lines if line.term == name]
        if not self.lines:
            raise unknown(f"term of the {phase.name} called", name, {line.term for line in ledger.lines})
        self.many, self.when = len(self.lines), f"a {phase.title}"
        self.exposed_s = float(ledger.by("term", "exposed_s")[name])
        self.expected_s = float(ledger.by("term", "expected_s")[name])
        self.bound_s = float(ledger.by("term", "bound_s")[name])

    def work(self) -> str:
        for term in self.phase.terms:
            if term.name == self.name:
                return f", {render(term.bytes, 'bytes')} and {render(term.flops, 'FLOP')}"
        # terms of the engine's constants move and compute nothing
        return ""

    def tables(self) -> list[LineTable]:
        return [line_table(self.lines)]

    def compared(self) -> Comparison:
        """The term at datasheet rates, as expected, and the parts of that which are exposed and hidden."""
        times = ""
        if self.bound_s and self.expected_s:
            times = f"{self.expected_s / self.bound_s:.2f} times its bound"
        rows = [
            Part("at datasheet rates", amount(self.bound_s, "s")),
            Part("expected", amount(self.expected_s, "s"), times),
            Part("exposed", amount(self.exposed_s, "s", f"{self.phase.kind}:{self.name}")),
            Part("hidden under other work", amount(max(self.expected_s - self.exposed_s, 0.0), "s")),
        ]
        if any(line.moves for line in self.lines):
            return Comparison.of(networks_measured(self.of.chip), rows)
        return Comparison.of(kernels_measured(self.of.chip, "", ("matmul", "decode")), rows)

    def formulas(self) -> NumberFormulas:
        return self.phase.formulas(self.name, "This term has no bound: it is what the engine's constants add.")


class _Held:
    """A part of a chip's memory, tensor by tensor."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        config = of.config
        if config.memory is None or name not in _PARTS:
            raise unknown("part of memory called", name, _PARTS)
        field, sentence = _PARTS[name]
        self.of, self.name, self.title = of, name, name[:1].upper() + name[1:]
        self.bytes = float(getattr(config.memory, field))
        bill = held_bill(of.report.asked, config.batch, of.deployment)
        self.lines = [line for line in bill.held if line.part == name]
        self.sentence = sentence.format(f"{config.batch:,}")
        if not sentence:
            self.sentence = f"Bytes of {name} on a chip: {len(self.lines)} tensors."

    def tables(self) -> list[LineTable]:
        if not self.lines:  # a reserve holds no tensors
            return []
        return [held_table(self.lines, amount(self.bytes, "bytes", f"memory:{self.name}"))]

    def formulas(self) -> NumberFormulas:
        if self.of.report.asked.ask.output <= 1:
            return NumberFormulas()
        _, phase = self.of.decode.lettered[0]
        lines: list[FormulaLine] = []
        memory = phase.ledger.memory
        if self.name in memory:
            lines.append(phase.say(f"{self.name}, this decode step's", memory[self.name], "bytes"))
        return NumberFormulas.of(lines, self.of.letters(phase))


class _Sent:
    """What a replica sends over an axis of its mesh, in a decode step and in a prompt."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        self.of, self.name = of, name
        bills = bills_of(of.report)
        self.lines: dict[_Phase, list[LedgerLine]] = {}
        for phase in (of.decode, of.prefill):
            # an answer of one token has no bill of a decode step
            if phase.name in bills and (lines := self._local(bills[phase.name])):
                self.lines[phase] = lines
        if not self.lines:
            axes = {axis for bill in bills.values() for line in bill.lines for axis in line.axes}
            raise unknown("mesh axis that something is sent over called", name, axes)
        # those of a decode step; of a prompt where decoding sends nothing over the axis
        self.bytes = next((self._total(phase, "wire_bytes") for phase in self.sending), 0.0)

    def _local(self, ledger: Ledger) -> list[LedgerLine]:
        """Lines that send over the axis, or over the set of axes that the name joins."""
        return [line for line in ledger.lines if line.moves and self.name in ("+".join(line.axes), *line.axes)]

    def _total(self, phase: _Phase, key: str) -> float:
        return sum(float(line.total(key)) for line in self.lines[phase])

    @functools.cached_property
    def sending(self) -> list[_Phase]:
        """Phases in which something is sent."""
        return [phase for phase in self.lines if self._total(phase, "wire_bytes")]

    def rows(self) -> list[Part]:
        sending, rows = self.sending, list[Part]()
        for phase in sending:
            rows.append(Part(f"in a {phase.title}", amount(self._total(phase, "wire_bytes"), "bytes")))
        for phase in sending:
            for name in ("expected", "exposed"):
                rows.append(Part(f"{name}, {phase.name}", amount(self._total(phase, f"{name}_s"), "s")))
        return rows

    def tables(self) -> list[LineTable]:
        return [line_table(self.lines[phase], f"Moves of a {phase.title}") for phase in self.sending]

    def formulas(self) -> NumberFormulas:
        lines, letters = list[FormulaLine](), list[Letter]()
        phases = [self.of.prefill]
        if self.of.report.asked.ask.output > 1:
            phases.insert(0, self.of.decode)
        for phase in phases:
            _, lettered = phase.lettered[0]
            total: Any = sum((line.total("wire_bytes") for line in self._local(lettered.ledger)), 0)
            if total:
                lines.append(lettered.say(f"bytes sent in an iteration of {phase.name}", total, "bytes"))
                letters += self.of.letters(lettered)
        return NumberFormulas.of(lines, dict.fromkeys(letters))


class _Limit:
    """A limit that is solved from the iterations."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        limits = {limit.name: limit for limit in of.report.limits}
        if name not in limits:
            raise unknown("limit called", name, limits)
        self.limit, self.title = limits[name], name[:1].upper() + name[1:]
        self.counts = self.limit.counts or name

    def formulas(self) -> NumberFormulas:
        limit = self.limit
        text = f"{limit.value:,.6g}"
        return NumberFormulas([FormulaLine(limit.name, limit.formula, limit.formula, text, limit.value, "count")])
