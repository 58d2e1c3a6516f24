"""Where the numbers of a training plan come from: every term, line and part of memory of the real plan of the real
model as a formula, with the numbers put in, and the sizes at which a kind of move takes as long as compute.

The formulas are the lines of the plan's own ledger over letters (`dragonscale.training.cost.formulas`). Times are at
datasheet rates; what is expected of the step is told beside them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.commands.explain.formulas import (
    QUANTITIES,
    ExpectedTerm,
    Explanation,
    FormulaLine,
    Lettered,
    formula_text,
    letters_in,
)
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.plans import MEMORY_NAMES, term_rows
from dragonscale.commands.train.train_question import read_question
from dragonscale.commands.train.train_records import TermRow
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.formula import expression
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.units import render
from dragonscale.plan.ledger import COLLECTIVES
from dragonscale.plan.letters import Letters
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one
from dragonscale.training.cost.formulas import formula_verdict
from dragonscale.training.cost.optimizer_update import HOST_UPDATE
from dragonscale.training.cost.step_ledger import WIRES
from dragonscale.training.cost.wire_crossings import Crossing, crossings
from dragonscale.training.plan.legality import family
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.plan_file import given_settings
from dragonscale.training.plan.scheme import is_scheme, read_scheme
from dragonscale.training.plan.stack import change
from dragonscale.training.search.data_ranks import read_ranks
from dragonscale.training.search.stack_search import job_for


@dataclass(frozen=True)
class StepFormulas(Lettered):
    """A plan's ledger over letters, and what these stand for."""

    job: Job
    plan: Plan
    verdict: Verdict
    letters: Letters

    @classmethod
    def of(cls, job: Job, plan: Plan) -> "StepFormulas":
        """The formulas of a plan."""
        return cls(job, plan, *formula_verdict(job, plan))

    def memory_lines(self, label: str = "{}", part: str = "") -> Iterator[FormulaLine]:
        """Each part of memory that takes any, or the one of a name; `label` says what a line is called."""
        for key, size in self.verdict.ledger.memory.items():
            name = MEMORY_NAMES.get(key, key)
            if name == part or (not part and float(size) > 0):
                yield self.say(label.format(name), size, "bytes")

    def sent_lines(self, axis: str = "") -> Iterator[FormulaLine]:
        """Bytes over each set of mesh axes, or over those with an axis (`fsdp`) or a set of them (`context+fsdp`)."""
        for axes, size in self.verdict.ledger.sent_bytes.items():
            over = "+".join(axes)
            if axis in ("", over, *axes):
                yield self.say(f"bytes sent over {over}", size, "bytes")


def explain_train(job: Job, plan: Plan, line: str = "", solve: str = "", wire: str = "") -> Explanation:
    """All terms of a step and parts of its memory, or the lines, terms and tensors of a name; with `solve`, where wires
    and compute take equally long. `wire` is the format of activations between chips, where it is not the stack's."""
    if wire:
        job = replace(job, stack=change(job.stack, "state", activation_bytes=float(dtype_bytes(wire))))
    formulas, real = StepFormulas.of(job, plan), judge_one(job, plan)
    variables = [name.strip() for name in (solve or "batch").split(",")]
    solved = crossings(formulas.verdict, formulas.letters, variables, plan)
    if line:
        lines, terms = [*_named(formulas, line)], []
    else:
        lines, terms = [*_overview(formulas)], _terms(job, real)
    work = f"{job.batch} sequences of {job.sequence:,} tokens"
    return Explanation(
        f"{job.model.name} on {job.slice}: {short_plan(plan)}, {work}, {job.stack.name}",
        lines,
        crossovers=crossing_sentences(solved, real, job.stack.name),
        notes=[*_fitted(formulas, lines), *_notes(formulas, real)],
        solutions=[_solution(crossing) for crossing in solved if crossing.value is not None],
        terms=terms,
    )


def _terms(job: Job, real: Verdict) -> list[ExpectedTerm]:
    """Every term of the step from datasheet rates to what is expected, the longest exposed first; last the step
    itself."""
    rows = term_rows(real)
    step_s = sum(row.exposed_s for row in rows)
    kinds = {line.term: line.kind for line in real.ledger.lines}
    read = real.ledger.by("term", "hbm_bytes")
    terms = []
    for row in rows:
        why = _why_longer(job, row, kinds[row.name], float(read[row.name]), step_s)
        terms.append(ExpectedTerm(row.name, row.lower_s, row.expected_s, row.exposed_s, why))
    expected_s = sum(row.expected_s for row in rows)
    return [*terms, ExpectedTerm("step", float(real.upper), expected_s, step_s, "")]


def _why_longer(job: Job, row: TermRow, kind: str, hbm_bytes: float, step_s: float) -> str:
    """Why a term takes as long as it does: the part of a rate that it reaches, or what sets its time."""
    chip, took_s = job.slice.chip, row.expected_s or 1.0  # a term of no time reaches 0% of any rate
    part = f"{row.lower_s / took_s:.0%} of"
    if kind == "host transfer":
        return f"to the host and back at {render(chip.host_link, 'bytes/s')} a chip, an estimate"
    if row.name == "optimizer" and kind == "host":
        return f"updated by the host's cores at {render(HOST_UPDATE, 'bytes/s')} a chip, an estimate"
    if kind in COLLECTIVES and row.name == "optimizer":  # Muon's, with Newton-Schulz iterations
        return f"{part} the rates of its matmuls, memory and wires"
    if kind in COLLECTIVES:
        hidden = 1 - row.exposed_s / took_s
        if hidden > MIN_HIDDEN:
            return f"{part} the wires' rate, {hidden:.0%} overlapped"
        return f"{part} the wires' rate"
    if row.flops and row.lower_s and kind != "optimizer":
        return f"{part} the peak"
    if hbm_bytes:
        return f"{render(hbm_bytes, 'bytes')} at {hbm_bytes / took_s / chip.bandwidth('hbm'):.0%} of HBM's rate"
    if row.name == "stragglers":  # the slowest host, as a fraction of a step without it
        return f"{row.exposed_s / (step_s - row.exposed_s):.1%} of the rest, for {job.slice.hosts} hosts"
    return _REST.get(kind, f"{part} datasheet rates")


# The smallest fraction of a term that is said to overlap; less would read 0%.
MIN_HIDDEN = 0.005
_REST = {"copy": "weights copied, gradients added in HBM", "host": "the host between kernels"}
"""Why terms without a formula take their time, by their kind."""


def _overview(formulas: StepFormulas) -> Iterator[FormulaLine]:
    """Every term, what is sent over each set of axes, the FLOPs, and every part of memory."""
    for term, seconds in formulas.verdict.ledger.by("term", "bound_s").items():
        if float(seconds) > 0:
            yield formulas.say(term, seconds, "s")
    yield from formulas.sent_lines()
    yield formulas.say("matmul FLOPs of a chip", formulas.verdict.flops, "FLOP")
    yield from formulas.memory_lines("memory: {}")


def _named(formulas: StepFormulas, name: str) -> Iterator[FormulaLine]:
    """Lines by the name of what they make or move, their kind, term, part, phase or axes; tensors in
    memory by theirs."""
    ledger = formulas.verdict.ledger
    names_seen: dict[str, None] = {}
    count = 0
    if name in ledger.by("term", "times"):  # a term is all its lines together
        for key, quantity, unit in (*QUANTITIES, ("bound_s", "at datasheet rates", "s")):
            total = ledger.by("term", key)[name]
            if float(total):
                yield formulas.say(f"{name}, {quantity}", total, unit)
        return
    for line in ledger.lines:
        axes = "+".join(sorted(line.axes))
        # lines of fused matmuls are called after all that they make: `q+k+v`
        names = (line.what, line.kind, line.term, line.part, line.phase, axes, *line.axes, *line.what.split("+"))
        names_seen |= dict.fromkeys(filter(None, names))
        if name not in names:
            continue
        count += 1
        kind = line.kind
        if line.axes:
            kind += f" over {'+'.join(line.axes)}"
        label = f"{line.section}, {line.phase}: {line.what} ({kind})"
        yield from formulas.say_line(line, label, "times a step")
    for tensor in ledger.held:
        part = MEMORY_NAMES.get(tensor.part, tensor.part)
        names_seen |= dict.fromkeys((tensor.what, part))
        if name in (tensor.what, tensor.part, part):
            count += 1
            yield formulas.say(f"memory, {part}: {tensor.what}", tensor.bytes, "bytes")
    if not count:
        raise unknown("line of this plan called", name, sorted(names_seen))


def _solution(crossing: Crossing) -> FormulaLine:
    """A crossover as a line: the size at which it lies."""
    text = _formula_of(crossing)
    unit = {"batch": "tokens", "seq": "tokens", "chips": "chips"}.get(crossing.variable, "degree")
    name, value = f"{crossing.term}: {crossing.variable}", _size(crossing.value, unit)
    return FormulaLine(name, text, text, value, crossing.value, unit)


def _formula_of(crossing: Crossing) -> str:
    """The crossover as a formula; empty where it was found by numbers."""
    if crossing.formula is None:
        return ""
    return formula_text(crossing.formula)


def _size(value: float | None, unit: str) -> str:
    """Tokens are whole; a degree that is solved for is not."""
    if unit.strip() == "tokens":
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def crossing_sentences(solved: Iterable[Crossing], real: Verdict, stack: str) -> list[str]:
    """Crossovers in words, with what the stack leaves exposed of each."""
    exposed = real.ledger.by("term", "exposed_s")
    return [crossing_sentence(crossing, float(exposed.get(crossing.term, 0.0)), stack) for crossing in solved]


def crossing_sentence(crossing: Crossing, exposed_s: float, stack: str) -> str:
    """A crossover in words: what datasheet rates would allow, and what the stack leaves exposed of it."""
    term, variable, value = crossing.term, crossing.variable, crossing.value
    left = unit = ""
    if exposed_s > 0:
        left = f"; {stack} leaves {render(exposed_s, 's')} exposed"
    in_tokens = variable in ("batch", "seq")
    if in_tokens:
        unit = " tokens"
    # no degree is below one: there the crossover is out of reach
    if value is None or (value < 1 and not in_tokens):
        hide = "hide" if crossing.hides in ("above", "always") else "never hide"
        size = variable if in_tokens or variable == "chips" else f"{variable} degree"
        return f"{term} could {hide} under compute at datasheet rates whatever the {size}{left}"
    hides_above = crossing.hides == "above"
    limit = f"{variable} {'>' if hides_above else '<'} "
    if formula := _formula_of(crossing):  # a crossover that was found by numbers has none
        limit += f"{formula} = "
    limit += f"{_size(value, unit)}{unit}"
    if variable == "batch" and crossing.microbatches > 1:  # a batch of fewer or more of them crosses elsewhere
        limit += f" ({value / crossing.microbatches:,.0f} in each of {crossing.microbatches:,.4g} microbatches)"
    they = "they" if term.endswith("s") else "it"
    # whether the plan's own size lies on the side on which the moves hide
    could = "could" if (crossing.here > value) == hides_above else "could not"
    here = f"here {_size(crossing.here, unit)}, so {they} {could}"
    return f"{term} could hide under compute at datasheet rates if {limit}; {here}{left}"


def _fitted(formulas: StepFormulas, lines: list[FormulaLine]) -> list[str]:
    """The constants in some formulas that were fitted, with their values and on what."""
    used = {name for line in lines for name in letters_in(line.formula)}
    notes: list[str] = []
    for name, origin in formulas.letters.fitted.items():
        if name in used:
            notes.append(f"{name} = {formulas.letters.values[name]:g}: {'; '.join(origin)}.")
    return notes


def _notes(formulas: StepFormulas, real: Verdict) -> list[str]:
    """Whether the plan runs, its bounds and what is expected, what the letters are, and what bounds it."""
    job, plan, notes = formulas.job, formulas.plan, list[str]()
    # sequences that all replicas take at once
    round_ = plan.replicas * plan.microbatch
    if job.batch % round_:
        notes.append(
            f"This plan cannot run: {job.batch} sequences do not divide into {plan.replicas:,} replicas x microbatches "
            f"of {plan.microbatch}; what a microbatch sends is counted for {job.batch / round_:.3g} of them."
        )
    hbm_bytes, limit = float(real.hbm_bytes), job.slice.chip.visible
    if hbm_bytes > limit:
        needs = f"it needs {render(hbm_bytes, 'bytes')} on the fullest chip, which has {render(limit, 'bytes')}"
        notes.append(f"This plan does not fit: {needs}.")
    compute_s = float(real.compute_s)
    # what asks for a resource of its own: the chip's compute, and each kind of move
    bound, longest_s = "compute", compute_s
    overlapped = f"compute {render(compute_s, 's')}"
    for term, seconds in real.wires_s.items():
        if float(seconds) > 0:
            overlapped += f", {term} {render(float(seconds), 's')}"
    for term in WIRES:
        seconds = float(real.wires_s.get(term, 0.0))
        if seconds > longest_s:
            bound, longest_s = term, seconds
    notes.append(
        f"At datasheet rates the step takes {render(float(real.lower), 's')} if everything overlaps ({overlapped}), "
        f"{render(float(real.upper), 's')} if nothing does; expected {render(float(real.seconds), 's')}."
    )
    used = {letter.name for line in formulas.verdict.ledger.lines for letter in expression(line.bound_s).free_symbols}
    rates = []
    # rates are called C (compute) and W (width of a memory or a link)
    units = {"C": "FLOP/s", "W": "bytes/s"}
    for name, value in formulas.letters.values.items():
        if name[0] in units and name in used:
            rates.append(f"{name} = {render(value, units[name[0]])}")
    notes.append(
        "B sequences of T tokens a step in microbatches of mb on each replica; D, F, N, K, H, V, E, k are the model's "
        f"dims, L its layers; mesh axes by their names; {', '.join(rates)}."
    )
    return [*notes, *_formats(formulas), f"Bound by {bound} at datasheet rates."]


def _formats(formulas: StepFormulas) -> list[str]:
    """In how many bytes each kind of tensor travels, as far as something travels."""
    moving = {line.carries for line in formulas.verdict.ledger.lines if float(line.wire_bytes)}
    if not moving:
        return []
    state, plan = formulas.job.stack.state, formulas.plan
    weight_bytes = 2.0
    if state.narrow_gathers:  # weights are cast to the matmuls' format before they travel
        weight_bytes = min(weight_bytes, dtype_bytes(plan.dtype))
    formats = []
    also = ""
    if "activation" in moving:
        also = "; --wire takes another format for activations"
        formats.append(f"activations in {state.activation_bytes:g} bytes")
        if weight_bytes < 2 and plan.tensor > 1:
            formats[-1] += f" (gathered over tensor for matmuls in {weight_bytes:g})"
    if "weight" in moving:
        formats.append(f"weights in {weight_bytes:g} bytes")
    if "gradient" in moving:
        # ZeRO-3 scatters gradients, all others sum them
        gradient_bytes = state.scatter_bytes if plan.zero == 3 else state.reduce_bytes
        formats.append(f"gradients in {gradient_bytes:g} bytes")
    if not formats:
        return []
    return [f"Matmuls in {plan.dtype}. Between chips travel {', '.join(formats)}{also}."]


def explained_job(
    plan: str, model: Any, on: Any, batch: str, seq: str, stack: str, dtype: str, numerics: str = "", **tuned: Any
) -> tuple[Job, Plan]:
    """The job and the plan of `dscale explain train`."""
    flags: dict[str, Any] = {"batch": batch, "seq": seq, "stack": stack, "dtype": dtype, "numerics": numerics}
    job = read_question(TrainQuestion(model=model, on=on, **flags, **tuned)).job
    if job.slice is None:
        needs = "Formulas are those of a plan on a slice"
        raise InputError(f"{needs}; --on is {shorten(on)}, write e.g. v5p:4x4x4 or h100:64.")
    split, chips = read_scheme(plan, job.slice), job.slice.chips
    if split.chips != chips:
        raise InputError(f"The plan {split} is for {split.chips} chips and {job.slice} has {chips}; they must agree.")
    step_job, named = job_for(job.on_slice(), split), frozenset[str]()
    if not is_scheme(plan):  # `fsdp8` names degrees alone; a file or `fsdp=8,dtype=fp8` may name settings too
        named = given_settings(plan)
    split, _ = read_ranks(split, named, step_job.stack.name, family(step_job.slice.chip))
    if "dtype" not in named:
        split = replace(split, dtype=dtype)
    return step_job, split
