"""Where the numbers of a training plan come from: every term, line and part of memory of the real plan of the real
model as a formula, with the numbers put in, and the sizes at which a kind of move takes as long as compute.

The formulas are the lines of the plan's own ledger over letters (`dragonscale.training.cost.formulas`). Times are at
datasheet rates; what is expected of the step is told beside them.
"""

from collections.abc import Iterator
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


def explain_train(job: Job, plan: Plan, line: str = "", solve: str = "", wire: str = "") -> Explanation:
    """All terms of a step and parts of its memory, or the lines, terms and tensors of a name; with `solve`, where wires
    and compute take equally long. `wire` is the format of activations between chips, where it is not the stack's."""
    if wire:
        job = replace(job, stack=change(job.stack, "state", activation_bytes=float(dtype_bytes(wire))))
    formulas = StepFormulas.of(job, plan)
    variables = list(map(str.strip, (solve or "batch").split(",")))
    solved = crossings(formulas.verdict, formulas.letters, variables, plan)
    lines = [*_named(formulas, line)] if line else [*_overview(formulas)]
    work = f"{job.batch} sequences of {job.sequence:,} tokens"
    subject = f"{job.model.name} on {job.slice}: {short_plan(plan)}, {work}, {job.stack.name}"
    solutions = [_solution(crossing) for crossing in solved if crossing.value is not None]
    real = judge_one(job, plan)
    exposed = real.ledger.by("term", "exposed_s")
    sentences = [
        crossing_sentence(crossing, float(exposed.get(crossing.term, 0.0)), job.stack.name) for crossing in solved
    ]
    terms = [] if line else _terms(job, real)
    return Explanation(
        subject, lines, sentences, [*_fitted(formulas, lines), *_notes(formulas, real)], solutions, terms
    )


def _terms(job: Job, real: Verdict) -> list[ExpectedTerm]:
    """Every term of the step from datasheet rates to what is expected, the longest exposed first."""
    rows = term_rows(real)
    step, terms = sum(row.exposed_s for row in rows), list[ExpectedTerm]()
    kinds = {line.term: line.kind for line in real.ledger.lines}
    read = real.ledger.by("term", "hbm_bytes")
    for row in rows:
        took, read_bytes, kind = row.expected_s or 1.0, float(read[row.name]), kinds[row.name]
        part = f"{row.lower_s / took:.0%} of"
        why = _REST.get(kind, f"{part} datasheet rates")
        if kind == "host transfer":
            why = f"to the host and back at {render(job.slice.chip.host_link, 'bytes/s')} a chip, an estimate"
        elif row.name == "optimizer" and kind == "host":
            why = f"updated by the host's cores at {render(HOST_UPDATE, 'bytes/s')} a chip, an estimate"
        elif kind in COLLECTIVES:
            hidden = 1 - row.exposed_s / took
            why = f"{part} the wires' rate{f', {hidden:.0%} overlapped' if hidden > MIN_OVERLAP else ''}"
        elif row.flops and row.lower_s and kind != "optimizer":
            why = f"{part} the peak"
        elif read_bytes:
            rate = read_bytes / took / job.slice.chip.bandwidth("hbm")
            why = f"{render(read_bytes, 'bytes')} at {rate:.0%} of HBM's rate"
        elif row.name == "stragglers":
            why = f"{row.exposed_s / (step - row.exposed_s):.1%} of the rest, for {job.slice.hosts} hosts"
        terms.append(ExpectedTerm(row.name, row.lower_s, row.expected_s, row.exposed_s, why))
    return [*terms, ExpectedTerm("step", float(real.upper), sum(row.expected_s for row in rows), step, "")]


# The fraction of a term that overlaps from which on it is mentioned.
MIN_OVERLAP = 0.005
# Why terms without a formula take their time, by their kind.
_REST = {"copy": "weights copied, gradients added in HBM", "host": "the host between kernels"}


def _overview(formulas: StepFormulas) -> Iterator[FormulaLine]:
    ledger = formulas.verdict.ledger
    for term, seconds in ledger.by("term", "bound_s").items():
        if float(seconds) > 0:
            yield formulas.say(term, seconds, "s")
    for axes, sent in ledger.sent_bytes.items():
        yield formulas.say(f"bytes sent over {'+'.join(axes)}", sent, "bytes")
    yield formulas.say("matmul FLOPs of a chip", formulas.verdict.flops, "FLOP")
    for part, size in ledger.memory.items():
        if float(size) > 0:
            yield formulas.say(f"memory: {MEMORY_NAMES.get(part, part)}", size, "bytes")


def _named(formulas: StepFormulas, name: str) -> Iterator[FormulaLine]:
    """Lines by the name of what they make or move, their kind, term, part, phase or axes; tensors in
    memory by theirs."""
    ledger = formulas.verdict.ledger
    names_seen: dict[str, None] = {}
    count = 0
    if name in ledger.by("term", "times"):  # a term is all its lines together
        for key, label_of, unit in (*QUANTITIES, ("bound_s", "at datasheet rates", "s")):
            total = ledger.by("term", key)[name]
            if float(total):
                yield formulas.say(f"{name}, {label_of}", total, unit)
        return
    for line in ledger.lines:
        axes = "+".join(sorted(line.axes))
        names = (line.what, line.kind, line.term, line.part, line.phase, axes, *line.axes, *line.what.split("+"))
        names_seen |= dict.fromkeys(name_of for name_of in names if name_of)
        if name not in names:
            continue
        count += 1
        over = ""
        if line.axes:
            over = f" over {'+'.join(line.axes)}"
        label = f"{line.section}, {line.phase}: {line.what} ({line.kind}{over})"
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
    text = ""
    if crossing.formula is not None:
        text = formula_text(crossing.formula)
    unit = {"batch": "tokens", "seq": "tokens", "chips": "chips"}.get(crossing.variable, "degree")
    return FormulaLine(
        f"{crossing.term}: {crossing.variable}", text, text, _size(crossing.value, unit), crossing.value, unit
    )


def _size(value: float | None, unit: str) -> str:
    """Tokens are whole; a degree that is solved for is not."""
    if unit.strip() == "tokens":
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def crossing_sentence(crossing: Crossing, exposed: float, stack: str) -> str:
    """A crossover in words: what datasheet rates would allow, and what the stack leaves exposed of it."""
    they = "they" if crossing.term.endswith("s") else "it"
    left = ""
    if exposed > 0:
        left = f"; {stack} leaves {render(exposed, 's')} exposed"
    could = "could hide under compute at datasheet rates"
    whole = crossing.variable in ("batch", "seq")
    if crossing.value is None or (crossing.value < 1 and not whole):  # no degree is below one
        always = crossing.hides in ("always", "above")
        size = crossing.variable if crossing.variable in ("batch", "seq", "chips") else f"{crossing.variable} degree"
        if not always:
            could = could.replace("could", "could never")
        return f"{crossing.term} {could} whatever the {size}{left}"
    sign = ">" if crossing.hides == "above" else "<"
    unit = {"batch": " tokens", "seq": " tokens"}.get(crossing.variable, "")
    here = "" if (crossing.here > crossing.value) == (crossing.hides == "above") else " not"
    formula = f"{formula_text(crossing.formula)} = " if crossing.formula is not None else ""
    limit = f"{crossing.term} {could} if {crossing.variable} {sign} {formula}{_size(crossing.value, unit)}{unit}"
    if crossing.variable == "batch" and crossing.microbatches > 1:  # a batch of fewer or more of them crosses elsewhere
        limit += (
            f" ({crossing.value / crossing.microbatches:,.0f} in each of {crossing.microbatches:,.4g} microbatches)"
        )
    return f"{limit}; here {_size(crossing.here, unit)}, so {they} could{here}{left}"


def _fitted(formulas: StepFormulas, lines: list[FormulaLine]) -> list[str]:
    """The constants in some formulas that were fitted, with their values and on what."""
    used = {name for line in lines for name in letters_in(line.formula)}
    fits = {name: sources for name, sources in formulas.letters.fitted.items() if name in used}
    return [f"{name} = {formulas.letters.values[name]:g}: {'; '.join(sources)}." for name, sources in fits.items()]


def _notes(formulas: StepFormulas, real: Verdict) -> list[str]:
    needed, limit = float(real.hbm_bytes), formulas.job.slice.chip.visible
    full = (
        f"This plan does not fit: it needs {render(needed, 'bytes')} on the fullest chip, which has "
        f"{render(limit, 'bytes')}."
    )
    job, share = formulas.job, formulas.plan.replicas * formulas.plan.microbatch
    uneven = (
        f"This plan cannot run: {job.batch} sequences do not divide into {formulas.plan.replicas:,} replicas x "
        "microbatches of "
        f"{formulas.plan.microbatch}; what a microbatch sends is counted for {job.batch / share:.3g} of them."
    )
    compute = float(real.compute_s)
    wires = {term: float(value) for term, value in real.wires_s.items() if float(value) > 0}
    parts = {"compute": compute} | wires
    overlapped = ", ".join(f"{term} {render(value, 's')}" for term, value in parts.items())
    lower, upper, expected = (render(float(value), "s") for value in (real.lower, real.upper, real.seconds))
    used = {letter.name for line in formulas.verdict.ledger.lines for letter in expression(line.bound_s).free_symbols}
    rates = [
        f"{name} = {render(value, 'FLOP/s' if name.startswith('C') else 'bytes/s')}"
        for name, value in formulas.letters.values.items()
        if name[0] in "CW" and name in used
    ]
    largest = max(WIRES, key=lambda term: wires.get(term, 0.0))
    bound = largest if wires.get(largest, 0.0) > compute else "compute"
    refused: list[str] = []
    if job.batch % share:
        refused.append(uneven)
    if needed > limit:
        refused.append(full)
    return [
        *refused,
        f"At datasheet rates the step takes {lower} if everything overlaps ({overlapped}), {upper} if nothing does; "
        f"expected {expected}.",
        "B sequences of T tokens a step in microbatches of mb on each replica; D, F, N, K, H, V, E, k are the "
        "model's dims, "
        f"L its layers; mesh axes by their names; {', '.join(rates)}.",
        *_formats(formulas),
        f"Bound by {bound} at datasheet rates.",
    ]


def _formats(formulas: StepFormulas) -> list[str]:
    """In how many bytes things travel, as far as something does."""
    moving = {line.carries for line in formulas.verdict.ledger.lines if float(line.wire_bytes)}
    state, plan = formulas.job.stack.state, formulas.plan
    # weights travel in bf16, or where the stack casts them first, in the format that is multiplied
    weight = min(2.0, dtype_bytes(plan.dtype)) if state.narrow_gathers else 2.0
    texts: list[str] = []
    if "activation" in moving:
        cast = ""
        if weight < 2 and plan.tensor > 1:
            cast = f" (gathered over tensor for matmuls in {weight:g})"
        texts.append(f"activations in {state.activation_bytes:g} bytes{cast}")
    if "weight" in moving:
        texts.append(f"weights in {weight:g} bytes")
    if "gradient" in moving:
        # gradients of ZeRO 3 are scattered, others reduced
        texts.append(f"gradients in {state.scatter_bytes if plan.zero == 3 else state.reduce_bytes:g} bytes")
    if not texts:
        return []
    also = ""
    if "activation" in moving:
        also = "; --wire takes another format for activations"
    return [f"Matmuls in {plan.dtype}. Between chips travel {', '.join(texts)}{also}."]


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
    step_job, named = job_for(job.on_slice(), split), frozenset[str]() if is_scheme(plan) else given_settings(plan)
    split, _ = read_ranks(split, named, step_job.stack.name, family(step_job.slice.chip))
    return step_job, split if "dtype" in named else replace(split, dtype=dtype)
