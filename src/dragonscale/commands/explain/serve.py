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

from dragonscale.commands.explain.formulas import (
    QUANTITIES,
    Explanation,
    FormulaLine,
    Lettered,
    formula_line,
    solution_sentence,
)
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

# What can be solved for, beside the mesh axes, by letter.
VARIABLES = {"batch": "B", "context": "S", "prompt": "T"}


@dataclass(frozen=True)
class LetteredPhase(Lettered):
    """A decode step or a prefill of a configuration; `open_deployment` and `open_step` are its deployment and
    iteration with letters for their sizes."""

    name: str
    deployment: Deployment
    step: Iteration
    letters: Letters
    open_deployment: Deployment
    open_step: Iteration

    @cached_property
    def cost(self) -> IterationCost:
        return iteration_cost(self.open_deployment, self.open_step)

    @cached_property
    def ledger(self) -> Ledger:
        return iteration_ledger(self.open_deployment, self.open_step)

    def axes(self, names: tuple[str, ...]) -> str:
        """The mesh axes of more than one chip among some."""
        return "+".join(name for name in names if self.open_deployment.axes[name] != 1)


def lettered_phase(name: str, deployment: Deployment, step: Iteration) -> LetteredPhase:
    """An iteration of a deployment over letters."""
    letters = Letters()
    return LetteredPhase(name, deployment, step, letters, *lettered_iteration(deployment, step, letters))


def explain_serve(understood: ServeAsked, line: str = "", solve: str = "") -> Explanation:
    """Explain the plan and batch that were given, or the best ones: all of an iteration, or the lines, terms and
    tensors that a name says; with `solve`, where two resources take equally long."""
    # formulas hold for a plan that its engine would refuse, which is said at the end
    refused = job_refusal(understood) or chip_refusal(understood, understood.targets[0][0])
    configs = search(understood)
    if not configs and refused:
        raise Infeasible(f"Not possible: {refused}.")
    if not configs:
        raise Infeasible(" ".join(reason.text for reason in unfit(understood).sentences[:2]))
    config = ranked(understood, configs)[0]
    where = f"{understood.model.name} on {config.piece}, {config.plan}, batch {config.batch}"
    phases = _phases(understood, config)
    # the batch at which a decode step turns compute-bound, and the like
    limits = list(solved_limits(understood, config))
    if solve:
        spelled = VARIABLES.get(solve, solve)
        limits = [*(limit for limit in limits if limit.variable == spelled), *_crossings(phases, solve)]
    solutions = list(map(_solution, limits))
    if line:
        lines = [*_named(phases, line)]
    else:
        lines = [*_overview(understood, config, phases)]
    notes = _notes(understood, config, phases, [*lines, *solutions])
    if refused:
        notes += [f"The formulas hold, but this would not run: {refused}."]
    return Explanation(where, lines, list(map(solution_sentence, solutions)), notes, solutions=solutions)


def _phases(understood: ServeAsked, config: Config) -> list[LetteredPhase]:
    deployment = deployed(understood, config)
    steps = iterations(understood, config.batch, deployment)
    phases = [lettered_phase(name, deployment, step) for name, step in steps.items()]
    if understood.ask.output > 1:
        return phases
    return phases[::-1]


def _overview(understood: ServeAsked, config: Config, phases: list[LetteredPhase]) -> Iterator[FormulaLine]:
    """Each term of both iterations and each part of the memory; then what follows from them."""
    seconds: dict[str, float] = {}
    for phase in phases:
        terms = {_term_name(name, phase.name): term.roofline for name, term in phase.cost.terms.items()}
        wires = {f"{phase.axes(axes)} collectives": wire.lower for axes, wire in phase.cost.wires.items()}
        for name, formula in (terms | wires).items():
            if formula > 0:
                yield phase.say(f"{phase.name}: {name}", formula, "s")
        # each term is a letter of the sum
        # named without what stands in brackets: `decode_attention`
        parts = {symbol(name.split(" (")[0].replace(" ", "_")): float(term) for name, term in terms.items()}
        # kernels follow each other, so their times add up
        total = sum(parts)
        hidden = ""
        if any(wire > 0 for wire in wires.values()):
            hidden = ", collectives hidden"
        yield formula_line(f"{phase.name}, kernel by kernel{hidden}", total, parts, "s")
        seconds[phase.name] = sum(parts.values())
    for part, size in phases[0].ledger.memory.items():
        yield phases[0].say(f"memory: {part}", size, "bytes")
    yield from _rates(understood, config, seconds)


def _term_name(name: str, phase: str) -> str:
    """What attention itself is called: of a prompt its matmuls count, of a decode step the cache it reads."""
    if name == "scores":
        if phase == "decode":
            return "decode attention (KV reads)"
        return "prompt attention (QK, softmax, PV)"
    if name == "attention":
        return "attention projections"
    return name


def _rates(understood: ServeAsked, config: Config, seconds: dict[str, float]) -> Iterator[FormulaLine]:
    """What the two iterations make of requests, at best."""
    chips, usd = config.chips, config.piece.chip.price
    numbers_of = {"d": seconds["decode"], "p": seconds["prefill"], "B": config.batch, "O": understood.ask.output}
    numbers_of["chips"] = chips
    if usd is not None:
        numbers_of["usd"] = usd
    of: dict[str, Any] = {name: symbol(name) for name in numbers_of}
    values = {of[name]: float(value) for name, value in numbers_of.items()}
    # prompts are spread over the data ranks, and fill the stages of a pipeline
    ranks = config.plan.data * config.plan.pipe
    state = steady_state(of["B"], of["d"], of["p"], of["p"] / ranks, of["O"])
    if understood.ask.output > 1:
        # a decode step, and the prompts of the other requests that come between steps
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
    names_seen: dict[str, None] = {}
    count = 0
    for phase in phases:
        for line in phase.ledger.lines:
            names = (line.what, line.kind, line.term, line.part, "+".join(line.axes), *line.what.split("+"))
            names_seen |= dict.fromkeys(filter(None, names))
            # a line that counts nothing has no formula
            if name not in names or not any(getattr(line, key) != 0 for key, _, _ in QUANTITIES):
                continue
            count += 1
            label = f"{phase.name}, {line.section}: {line.what} ({line.kind})"
            yield from phase.say_line(line, label, "times in an iteration")
    for tensor in phases[0].ledger.held:
        names_seen |= dict.fromkeys((tensor.what, tensor.part))
        if name in (tensor.what, tensor.part):
            count += 1
            what = tensor.what
            if tensor.section:
                what = f"{tensor.section}: {what}"
            yield phases[0].say(f"memory, {tensor.part}: {what}", tensor.bytes, "bytes")
    if not count:
        raise unknown("line, term or tensor called", name, names_seen)


def _crossings(phases: list[LetteredPhase], solve: str) -> Iterator[ServingLimit]:
    """Where any two resources of either iteration take equally long."""
    spelled = VARIABLES.get(solve, solve)
    if not any(spelled in phase.letters.values for phase in phases):
        axes = [axis for axis, size in phases[0].open_deployment.axes.items() if size != 1]
        raise unknown("letter to solve for called", solve, [*VARIABLES, *axes])
    for phase in phases:
        if spelled in phase.letters.values:
            yield from crossings(phase.deployment, phase.step, spelled, phase.name)


def _solution(limit: ServingLimit) -> FormulaLine:
    """A limit as a line: what it counts, its formula, the number."""
    values = {symbol(letter): value for letter, value in limit.letters.items() if letter != limit.variable}
    name = limit.name
    if limit.counts:
        name += f" ({limit.counts})"
    # solved in numbers alone: there is no formula to print
    if limit.formula is None or limit.text.startswith("where"):
        return FormulaLine(name, limit.text, limit.text, f"{limit.value:,.6g}", limit.value, "count")
    line = formula_line(name, limit.formula, values, "count")
    return FormulaLine(name, limit.text, line.numbers, f"{limit.value:,.6g}", limit.value, "count")


def _notes(understood: ServeAsked, config: Config, phases: list[LetteredPhase], shown: list[FormulaLine]) -> list[str]:
    state, plan = config.state, config.plan
    letters = phases[-1].letters.values | phases[0].letters.values
    used = {letter for line in shown for letter in re.findall(r"[A-Za-z_]\w*", line.formula)}
    rates = [f"{name} = {value:.6g}" for name, value in letters.items() if name in used]
    expected = (
        f"Expected of {config.engine}: a decode step of {render(config.decode_s, 's')}, "
        f"{config.decode_s / config.lower_s:.2f} times its bound of {render(config.lower_s, 's')} as sharded; TPOT "
        f"{render(float(state.tpot), 's')}, {config.tokens_per_chip:,.0f} tokens/s per chip, largest batch "
        f"{config.most:,}."
    )
    notes = [
        f"Letters: {', '.join(rates)}",
        f"B sequences of S cached tokens, prompts of T new tokens, outputs of O. Weights in {plan.weights}, matmuls in "
        f"{plan.compute}, cache in {plan.kv}, activations between chips in {plan.wire} (a plan's `wire`).",
    ]
    if understood.ask.output == 1:
        notes.append("One output token has no decode step: it is the prefill's.")
    return [*notes, expected]
