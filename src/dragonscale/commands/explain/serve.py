"""Where the numbers of a serving configuration come from: every line of the real iteration as a formula, and crossovers
solved.

The formulas are the lines of the iteration's own ledger over letters (`dragonscale.serving.iteration.formulas`): the
kernels, moves and tensors of this model under this plan, not a simplified layer. What is expected of the deployment,
through profiles of kernels and the engine's constants, is told beside them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dragonscale.commands.explain.formulas import QUANTITIES, Explanation, FormulaLine, Lettered, formula_line, told
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.unfit import unfit
from dragonscale.errors import Infeasible, unknown
from dragonscale.physics.rooflines import symbol
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.letters import Letters
from dragonscale.serving.advice.bills import deployed, iterations
from dragonscale.serving.advice.crossovers import ServingLimit, crossings
from dragonscale.serving.advice.limits import solved_limits
from dragonscale.serving.advice.refusals import chip_refusal, job_refusal
from dragonscale.serving.advice.search import ranked, search
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.formulas import lettered_iteration
from dragonscale.serving.iteration.iteration import Iteration, IterationCost
from dragonscale.serving.iteration.ledger import iteration_ledger
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.economics import usd_per_million
from dragonscale.serving.steady.steady import steady_state

VARIABLES = {"batch": "B", "context": "S", "prompt": "T"}
"""What can be solved for, beside the mesh axes, by letter."""


@dataclass(frozen=True)
class LetteredPhase(Lettered):
    """A decode step or a prefill of a configuration; `found` and `asked` are its deployment and
    iteration on letters."""

    name: str
    deployment: Deployment
    step: Iteration
    letters: Letters
    found: Deployment
    asked: Iteration

    @cached_property
    def cost(self) -> IterationCost:
        return iteration_cost(self.found, self.asked)

    @cached_property
    def ledger(self) -> Ledger:
        return iteration_ledger(self.found, self.asked)

    def axes(self, names: tuple[str, ...]) -> str:
        """The mesh axes of more than one chip among some."""
        return "+".join(name for name in names if self.found.axes[name] != 1)


def lettered_phase(name: str, deployment: Deployment, step: Iteration) -> LetteredPhase:
    """An iteration of a deployment over letters."""
    letters = Letters()
    return LetteredPhase(name, deployment, step, letters, *lettered_iteration(deployment, step, letters))


def explain_serve(asked: ServeAsked, line: str = "", solve: str = "") -> Explanation:
    """Explain the plan and batch that were given, or the best ones: all of an iteration, or the lines, terms and
    tensors that a name says; with `solve`, where two resources take equally long."""
    refused = job_refusal(asked) or chip_refusal(asked, asked.targets[0][0])
    configs = search(asked)
    if not configs and refused:
        raise Infeasible(f"Not possible: {refused}.")
    if not configs:
        raise Infeasible(" ".join(reason.text for reason in unfit(asked).sentences[:2]))
    config = ranked(asked, configs)[0]
    where = f"{asked.model.name} on {config.piece}, {config.plan}, batch {config.batch}"
    phases = _phases(asked, config)
    limits = list(solved_limits(asked, config))
    if solve:
        spelled = VARIABLES.get(solve, solve)
        limits = [*(one for one in limits if one.variable == spelled), *_crossings(phases, solve)]
    solutions = [_solution(limit) for limit in limits]
    lines = [*_named(phases, line)] if line else [*_overview(asked, config, phases)]
    notes = _notes(asked, config, phases, [*lines, *solutions])
    notes += [f"The formulas hold, but this would not run: {refused}."] if refused else []
    return Explanation(where, lines, [told(one) for one in solutions], notes, solutions=solutions)


def _phases(asked: ServeAsked, config: Config) -> list[LetteredPhase]:
    deployment = deployed(asked, config)
    steps = iterations(asked, config.batch, deployment)
    found = [lettered_phase(name, deployment, step) for name, step in steps.items()]
    return found if asked.ask.output > 1 else found[::-1]


def _overview(asked: ServeAsked, config: Config, phases: list[LetteredPhase]) -> Iterator[FormulaLine]:
    """Each term of both iterations and each part of the memory; then what follows from them."""
    seconds: dict[str, float] = {}
    for phase in phases:
        terms = {_term_name(name, phase.name): term.roofline for name, term in phase.cost.terms.items()}
        wires = {f"{phase.axes(axes)} collectives": wire.lower for axes, wire in phase.cost.wires.items()}
        for name, formula in (terms | wires).items():
            if formula > 0:
                yield phase.say(f"{phase.name}: {name}", formula, "s")
        parts = {symbol(name.split(" (")[0].replace(" ", "_")): float(term) for name, term in terms.items()}
        total = sum(parts)
        hidden = ", collectives hidden" if any(wire > 0 for wire in wires.values()) else ""
        yield formula_line(f"{phase.name}, kernel by kernel{hidden}", total, parts, "s")
        seconds[phase.name] = sum(parts.values())
    for part, held in phases[0].ledger.memory.items():
        yield phases[0].say(f"memory: {part}", held, "bytes")
    yield from _rates(asked, config, seconds)


def _term_name(name: str, phase: str) -> str:
    """What attention itself is called: of a prompt its matmuls count, of a decode step the cache it reads."""
    if name == "scores":
        return "decode attention (KV reads)" if phase == "decode" else "prompt attention (QK, softmax, PV)"
    return "attention projections" if name == "attention" else name


def _rates(asked: ServeAsked, config: Config, seconds: dict[str, float]) -> Iterator[FormulaLine]:
    """What the two iterations make of requests, at best."""
    known = {"d": seconds["decode"], "p": seconds["prefill"], "B": config.batch, "O": asked.ask.output}
    known |= {"chips": config.chips} | ({"usd": config.piece.chip.price} if config.piece.chip.price is not None else {})
    of: dict[str, Any] = {name: symbol(name) for name in known}
    values = {of[name]: float(value) for name, value in known.items()}
    ranks = config.plan.data * config.plan.pipe
    state = steady_state(of["B"], of["d"], of["p"], of["p"] / ranks, of["O"])
    if asked.ask.output > 1:
        tpot = of["d"] + of["p"] / ranks * (of["B"] - 1) / (of["O"] - 1)
        yield formula_line("TPOT at best, B - 1 prompts between steps", tpot, values, "s")
        yield formula_line(
            "tokens/s per chip while decoding, at best", of["B"] / (of["d"] * of["chips"]), values, "count/s"
        )
    yield formula_line("requests/s at best", state.requests, values, "count/s")
    if "usd" in of:
        cost = usd_per_million(state.requests * of["O"], of["chips"], of["usd"])
        yield formula_line("dollars per million output tokens at best", cost, values, "USD")


def _named(phases: list[LetteredPhase], name: str) -> Iterator[FormulaLine]:
    """Lines of the ledgers by the name of what they make, their kind, term, part or axis; tensors in
    memory by theirs."""
    seen: dict[str, None] = {}
    count = 0
    for phase in phases:
        for line in phase.ledger.lines:
            names = (line.what, line.kind, line.term, line.part, "+".join(line.axes), *line.what.split("+"))
            seen |= dict.fromkeys(one for one in names if one)
            if name not in names or not any(getattr(line, key) != 0 for key, _, _ in QUANTITIES):
                continue
            count += 1
            label = f"{phase.name}, {line.section}: {line.what} ({line.kind})"
            yield from phase.say_line(line, label, "times in an iteration")
    for held in phases[0].ledger.held:
        seen |= dict.fromkeys((held.what, held.part))
        if name in (held.what, held.part):
            count += 1
            section = f"{held.section}: " if held.section else ""
            yield phases[0].say(f"memory, {held.part}: {section}{held.what}", held.bytes, "bytes")
    if not count:
        raise unknown("line, term or tensor called", name, seen)


def _crossings(phases: list[LetteredPhase], solve: str) -> Iterator[ServingLimit]:
    """Where any two resources of either iteration take equally long."""
    spelled = VARIABLES.get(solve, solve)
    if not any(spelled in phase.letters.values for phase in phases):
        axes = [axis for axis, size in phases[0].found.axes.items() if size != 1]
        raise unknown("letter to solve for called", solve, [*VARIABLES, *axes])
    for phase in phases:
        if spelled in phase.letters.values:
            yield from crossings(phase.deployment, phase.step, spelled, phase.name)


def _solution(limit: ServingLimit) -> FormulaLine:
    """A limit as a line: what it counts, its formula, the number."""
    values = {symbol(letter): value for letter, value in limit.letters.items() if letter != limit.variable}
    name = f"{limit.name} ({limit.counts})" if limit.counts else limit.name
    if limit.formula is None or limit.text.startswith("where"):
        return FormulaLine(name, limit.text, limit.text, f"{limit.value:,.6g}", limit.value, "count")
    found = formula_line(name, limit.formula, values, "count")
    return FormulaLine(name, limit.text, found.numbers, f"{limit.value:,.6g}", limit.value, "count")


def _notes(asked: ServeAsked, config: Config, phases: list[LetteredPhase], shown: list[FormulaLine]) -> list[str]:
    state, plan = config.state, config.plan
    letters = phases[-1].letters.values | phases[0].letters.values
    used = {one for line in shown for one in re.findall(r"[A-Za-z_]\w*", line.formula)}
    rates = [f"{name} = {value:.6g}" for name, value in letters.items() if name in used]
    expected = (
        f"Expected of {config.engine}: a decode step of {render(config.decode_s, 's')}, "
        f"{config.decode_s / config.lower_s:.2f} times its bound of {render(config.lower_s, 's')} as sharded; TPOT "
        f"{render(float(state.tpot), 's')}, {config.tokens_per_chip:,.0f} tokens/s per chip, largest batch "
        f"{config.most:,}."
    )
    single = ["One output token has no decode step: it is the prefill's."] if asked.ask.output == 1 else []
    return [
        f"Letters: {', '.join(rates)}",
        f"B sequences of S cached tokens, prompts of T new tokens, outputs of O. Weights in {plan.weights}, matmuls in "
        f"{plan.compute}, cache in {plan.kv}, activations between chips in {plan.wire} (a plan's `wire`).",
        *single,
        expected,
    ]
