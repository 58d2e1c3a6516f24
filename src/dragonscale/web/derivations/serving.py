"""Numbers of a serving configuration: what a request waits for, an iteration from its terms, memory, rates and
dollars."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.commands.explain.formulas import FormulaLine
from dragonscale.commands.explain.serve import LetteredPhase, lettered_phase
from dragonscale.commands.serve.config import bills_of, deployment_of
from dragonscale.commands.serve.serve_blocks import error_text
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger, LedgerLine
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
from dragonscale.web.amounts import amount, hour_text
from dragonscale.web.derivations.ledger_tables import held_table, line_table
from dragonscale.web.derivations.letters import letters_of
from dragonscale.web.derivations.pieces import Compared, Piece, compared, formulas, row
from dragonscale.web.derivations.profiles import USED, kernel_sentence, network_sentence
from dragonscale.web.derivations.table import Numbers
from dragonscale.web.page_request import PageRequest

_SOLVED = ("decode_step_s", "lower_s", "roofline_s", "tpot_s", "batch", "max_batch", "output_tokens_per_s_per_chip")
"""Numbers that a crossover is told with."""
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
    one: ConfigReport
    view: ClassVar[str] = "serve"
    what: ClassVar[str] = "number of a serving plan called"
    facts_used: ClassVar[list[str]] = USED

    def names(self) -> dict[str, Any]:
        one, work, use = self.one, self.report.workload, self.one.memory
        length, token = work.prompt + work.output, one.kv_bytes_per_token if use is None else use.token_bytes
        room = SimpleNamespace(
            token=token,
            tokens=0 if use is None else use.tokens,
            sequence=use and use.sequence_bytes,
            whole=use and (use.sequence_bytes or token * length),
            cache=use and use.cache_bytes + use.free_bytes,
            batch=use and one.max_batch,
            watermark=WATERMARK,
            at_once=self.deployment.engine.scheduling.max_sequences * one.data,
            capacity=self.chip.memory["hbm"].capacity,
        )
        asked = SimpleNamespace(
            requests=one.requests_per_s * one.copies,
            rate=work.rate_per_s or 0.0,
            replicas=one.replicas or 0,
            fleet_chips=one.fleet_chips or 0,
            hour=hour_text(one.fleet_usd_per_h),
            how="counted in a simulated run" if one.simulated else "expected by the planner's steady state",
            length=length,
            context=round(self.report.asked.ask.context),
            price=next((price.text for price in self.report.prices if price.chip == self.chip.name), ""),
        )
        return {"of": self, "one": one, "work": work, "chip": self.chip, "room": room, "asked": asked}

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        of = functools.partial
        terms = {"term": of(_Term, self, "decode"), "prefill": of(_Term, self, "prefill")}
        return terms | {"memory": of(_Held, self), "sent": of(_Sent, self), "limit": of(_Limit, self)}

    @functools.cached_property
    def deployment(self) -> Deployment:
        return deployment_of(self.report.asked, self.one)

    @property
    def chip(self) -> Chip:
        return self.deployment.piece.chip

    @property
    def state(self) -> Steady:
        """The steady state that the report's times are read off."""
        return self.one.state

    @functools.cached_property
    def decode(self) -> "_Phase":
        return _Phase(self, "decode")

    @functools.cached_property
    def prefill(self) -> "_Phase":
        return _Phase(self, "prefill")

    def where(self) -> str:
        return f"{self.one.plan} on {self.one.copy_slice} by {self.one.engine}, {self.one.batch:,} requests in flight"

    def networks(self) -> Compared:
        return compared(*network_sentence(self.chip))

    def prompt_kernels(self) -> Compared:
        return compared(*kernel_sentence(self.chip, "", ("matmul", "attention")))

    # how sure

    def error(self) -> str:
        return error_text(self.report, self.one)

    def ttft_band(self) -> str:
        return self._banded("ttft")

    def tpot_band(self) -> str:
        return self._banded("tpot")

    def _banded(self, name: str) -> str:
        value, low, high = (getattr(self.one, f"{name}{end}_s") for end in ("", "_low", "_high"))
        if low is None or high is None:
            return self.error()
        return f"{render(low, 's')} to {render(high, 's')} around {render(value, 's')}: {self.error()}"

    # what a request waits for

    @functools.cached_property
    def waits(self) -> SimpleNamespace:
        """What a request's times add up from; a step of drafts yields several tokens."""
        state, drafts = self.state, self.one.drafts
        return SimpleNamespace(
            first=sum(float(one) for one in (state.front, state.under_way, state.waiting, state.prefill)),
            met=float(state.met),
            met_s=float(state.added * state.met) / max(float(state.output) - 1, 1),
            why="" if drafts else "decode_step_s",
            note="a step over the tokens it yields" if drafts else "a step gives each sequence a token",
        )

    def peak(self) -> float:
        return self.chip.peak("bf16")

    def peak_rows(self) -> list[Piece]:
        return [row(name, amount(rate, "FLOP/s")) for name, rate in self.chip.matrix.items()]

    def peak_facts(self) -> list[str]:
        return [f"matrix.{name}" for name in self.chip.matrix]

    # memory

    def memory_rows(self) -> list[Piece]:
        use, held = self.one.memory, list(_PARTS.items())[:4] if self.one.memory else []
        return [row(name, amount(float(getattr(use, key)), "bytes", f"memory:{name}")) for name, (key, _) in held]

    def lettered(self, found: LetteredPhase) -> list[Piece]:
        work = {
            "B": "sequences that decode at once" if found.name == "decode" else "prompts at once",
            "T": "new tokens of a prompt",
            "S": "tokens that a sequence holds, the new one included",
        }
        return list(letters_of(found.letters, self.chip, self.report.model, work))

    def crossovers(self, number: str) -> list[str]:
        """The limits of this configuration, solved from its own iterations."""
        limits = self.report.limits if number in _SOLVED else []
        return [f"{limit.name} ({limit.counts}): {limit.formula} = {limit.value:,.6g}" for limit in limits]


class _Phase:
    """A decode step or a prompt that runs alone: its bill, and its iterations over letters with how often each runs."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        self.of, self.name, self.decodes = of, name, name == "decode"
        self.kind = "term" if self.decodes else "prefill"
        self.terms = of.one.terms if self.decodes else of.one.prefill_terms
        self.seconds = of.one.decode_step_s if self.decodes else sum(term.expected_s for term in self.terms)

    @property
    def bill(self) -> Ledger:
        found = bills_of(self.of.report)
        if self.name not in found:
            raise InputError("One output token has no decode step: it is the prefill's.")
        return found[self.name]

    def rows(self) -> list[Piece]:
        exposed = sorted(self.bill.by("term", "exposed_s").items(), key=lambda pair: -float(pair[1]))
        return [row(name, amount(float(one), "s", f"{self.kind}:{name}")) for name, one in exposed if float(one) > 0]

    def bound_rows(self) -> list[Piece]:
        bound = {term.name: term.roofline_s for term in self.terms if term.roofline_s > 0}
        return [row(name, amount(one, "s", f"{self.kind}:{name}")) for name, one in bound.items()]

    def differs(self) -> Compared:
        """Bound and expectation side by side, why they differ, and the sources of that."""
        one, chip = self.of.one, self.of.chip
        kernels, sources = kernel_sentence(chip, "", ("matmul", "decode" if self.decodes else "attention"))
        bound = sum(term.roofline_s for term in self.terms)
        rows = [
            row("kernel by kernel at datasheet rates", amount(bound, "s", "roofline_s" if self.decodes else "")),
            row("expected", amount(self.seconds, "s"), f"{self.seconds / bound:.2f} times that" if bound else ""),
        ]
        best = [row("at best (all overlaps)", amount(one.lower_s, "s", "lower_s"))] if self.decodes else []
        networks, more = network_sentence(chip) if self.of.deployment.plan.chips > 1 else ("", [])
        own = f"The engine {one.engine} adds the host's work, launch gaps and sampling."
        return compared(" ".join(filter(None, (kernels, networks, own))), [*sources, *more], [*best, *rows])

    @functools.cached_property
    def lettered(self) -> list[tuple[float, LetteredPhase]]:
        asked = self.of.report.asked
        deployment = deployment_of(asked, self.of.one, self.name)
        if self.decodes:
            iteration = iterations(asked, self.of.one.batch, deployment)["decode"]
            return [(1.0, lettered_phase("decode", deployment, iteration))]
        return [
            (chunk.count, lettered_phase("prefill", deployment, prefill(chunk.tokens, 1, chunk.past)))
            for chunk in prompt_chunks(asked, deployment)
        ]

    def bounds(self, found: LetteredPhase) -> dict[str, Any]:
        """Seconds at datasheet rates of each term of an iteration over letters."""
        names = {"scores": STEP_SCORES if self.decodes else PROMPT_SCORES, "attention": "attention projections"}
        terms: dict[str, Any] = {names.get(name, name): term.roofline for name, term in found.cost.terms.items()}
        for axes, wire in found.cost.wires.items():
            terms[wire_name(axes)] = terms.get(wire_name(axes), 0) + wire.lower
        return terms

    def formulas(self) -> Piece:
        return self.say(lambda name: f"{name}, at datasheet rates", lambda _: True)

    def say(self, called: Callable[[str], str], wanted: Callable[[str], bool], otherwise: str = "") -> Piece:
        """The bounds of some terms as formulas."""
        lines, letters = list[FormulaLine](), list[Piece]()
        for times, found in self.lettered:
            often = f", {times:g} times" if times != 1 else ""
            bounds = {name: value for name, value in self.bounds(found).items() if value > 0 and wanted(name)}
            lines += [found.say(f"{called(name)}{often}", value, "s") for name, value in bounds.items()]
            letters += self.of.lettered(found) if bounds else []
        return formulas(lines, letters, notes=[otherwise] if otherwise and not lines else [])


class _Term:
    """The lines that are counted under one name in a decode step or a prompt."""

    def __init__(self, of: ServeNumbers, phase: str, name: str) -> None:
        self.of, self.name, self.title = of, name, name[:1].upper() + name[1:]
        self.phase = of.decode if phase == "decode" else of.prefill
        ledger = self.phase.bill
        self.lines = [line for line in ledger.lines if line.term == name]
        if not self.lines:
            raise unknown(f"term of the {phase} called", name, {line.term for line in ledger.lines})
        self.many, self.when = len(self.lines), "a decode step" if self.phase.decodes else "a prompt"
        self.exposed_s, self.expected_s, self.bound_s = (
            float(ledger.by("term", key)[name]) for key in ("exposed_s", "expected_s", "bound_s")
        )

    def work(self) -> str:
        term = next((term for term in self.phase.terms if term.name == self.name), None)
        return f", {render(term.bytes, 'bytes')} and {render(term.flops, 'FLOP')}" if term is not None else ""

    def tables(self) -> list[Piece]:
        return [line_table(self.lines)]

    def compared(self) -> Compared:
        moves = any(line.moves for line in self.lines)
        chip, times = self.of.chip, self.bound_s and self.expected_s and self.expected_s / self.bound_s
        text, sources = network_sentence(chip) if moves else kernel_sentence(chip, "", ("matmul", "decode"))
        rows = [
            row("at datasheet rates", amount(self.bound_s, "s")),
            row("expected", amount(self.expected_s, "s"), f"{times:.2f} times its bound" if times else ""),
            row("exposed", amount(self.exposed_s, "s", f"{self.phase.kind}:{self.name}")),
            row("hidden under other work", amount(max(self.expected_s - self.exposed_s, 0.0), "s")),
        ]
        return compared(text, sources, rows)

    def formulas(self) -> Piece:
        none = "This term has no bound: it is what the engine's constants add."
        return self.phase.say(lambda _: "seconds at datasheet rates", lambda name: name == self.name, none)


class _Held:
    """A part of a chip's memory, tensor by tensor."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        if of.one.memory is None or name not in _PARTS:
            raise unknown("part of memory called", name, _PARTS)
        key, told = _PARTS[name]
        self.of, self.name, self.title = of, name, name[:1].upper() + name[1:]
        self.bytes = float(getattr(of.one.memory, key))
        held = held_bill(of.report.asked, of.one.batch, of.deployment).held
        self.lines = [line for line in held if line.part == name]
        self.sentence = told.format(f"{of.one.batch:,}") or f"Bytes of {name} on a chip: {len(self.lines)} tensors."

    def tables(self) -> list[Piece]:
        return [held_table(self.lines, amount(self.bytes, "bytes", f"memory:{self.name}"))] if self.lines else []

    def formulas(self) -> Piece:
        if self.of.report.asked.ask.output <= 1:
            return formulas([])
        _, found = self.of.decode.lettered[0]
        held = [size for part, size in found.ledger.memory.items() if part == self.name]
        lines = [found.say(f"{self.name}, this decode step's", size, "bytes") for size in held]
        return formulas(lines, self.of.lettered(found))


class _Sent:
    """What a replica sends over an axis of its mesh, in a decode step and in a prompt."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        self.of, self.name = of, name
        bills = bills_of(of.report)
        every = {phase: self._own(bills[phase]) for phase in ("decode", "prefill") if phase in bills}
        self.lines = {phase: lines for phase, lines in every.items() if lines}
        if not self.lines:
            axes = {axis for book in bills.values() for line in book.lines for axis in line.axes}
            raise unknown("mesh axis that something is sent over called", name, axes)
        self.bytes = next(filter(None, (self._total(phase, "wire_bytes") for phase in self.lines)), 0.0)

    def _own(self, ledger: Ledger) -> list[LedgerLine]:
        return [line for line in ledger.lines if line.moves and self.name in ("+".join(line.axes), *line.axes)]

    def _total(self, phase: str, key: str) -> float:
        return sum(float(line.total(key)) for line in self.lines[phase])

    @property
    def sending(self) -> dict[str, str]:
        """Phases in which something is sent, in words."""
        words = {"decode": "decode step", "prefill": "prompt"}
        return {phase: words[phase] for phase in self.lines if self._total(phase, "wire_bytes")}

    def rows(self) -> list[Piece]:
        totals = [(f"in a {it}", self._total(phase, "wire_bytes"), "bytes") for phase, it in self.sending.items()]
        for phase in self.sending:
            totals += [
                (f"{words}, {phase}", self._total(phase, f"{words}_s"), "s") for words in ("expected", "exposed")
            ]
        return [row(name, amount(total, unit)) for name, total, unit in totals]

    def tables(self) -> list[Piece]:
        return [line_table(self.lines[phase], f"Moves of a {it}") for phase, it in self.sending.items()]

    def formulas(self) -> Piece:
        lines, letters = list[FormulaLine](), list[Piece]()
        for phase in (self.of.decode, self.of.prefill) if self.of.report.asked.ask.output > 1 else (self.of.prefill,):
            _, found = phase.lettered[0]
            total: Any = sum((line.total("wire_bytes") for line in self._own(found.ledger)), 0)
            if total:
                lines.append(found.say(f"bytes sent in an iteration of {phase.name}", total, "bytes"))
                letters += self.of.lettered(found)
        return formulas(lines, letters)


class _Limit:
    """A limit that is solved from the iterations."""

    def __init__(self, of: ServeNumbers, name: str) -> None:
        limits = {one.name: one for one in of.report.limits}
        if name not in limits:
            raise unknown("limit called", name, limits)
        self.limit, self.title = limits[name], name[:1].upper() + name[1:]
        self.counts = self.limit.counts or name

    def formulas(self) -> Piece:
        one = self.limit
        return formulas([FormulaLine(one.name, one.formula, one.formula, f"{one.value:,.6g}", one.value, "count")])


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any], _: str) -> ServeNumbers:
    """The first configuration of an answer."""
    record = asked.ask(of, fields, brief=False)
    if not record.configs:
        raise InputError("There is no configuration, so there is nothing to derive.")
    return vars(record).setdefault("derived", ServeNumbers(record, record.configs[0]))
