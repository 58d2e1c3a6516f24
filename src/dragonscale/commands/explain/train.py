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
from dragonscale.physics.hardware import Slice, dtype_bytes
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
from dragonscale.training.plan.plan_file import given_settings, parse_plan
from dragonscale.training.plan.stack import change
from dragonscale.training.search.data_ranks import read_ranks
from dragonscale.training.search.stack_search import job_for

SCHEMES = {"dp": "data", "ddp": "data", "fsdp": "fsdp", "tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipe"}
INNER = (8, 4, 2)
"""Chips that each further scheme gets beside the first: the most that leave it two."""


def is_scheme(text: str) -> bool:
    """Whether a text names parallelisms without their degrees: `fsdp+tp`, not `fsdp=8,tensor=4`, `tp8` or a file."""
    return not ("=" in text or text.strip().endswith(".toml") or any(letter.isdigit() for letter in text))


def read_scheme(text: str, piece: Slice) -> Plan:
    """A plan, or the name of a scheme (`fsdp`, `dp+tp`, `fsdp+ep+tp`) spread over a slice: the first takes what the
    others, of at most eight chips each, leave.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> print(read_scheme("fsdp+tp", parse_slice("h100:512")), "|", read_scheme("dp", parse_slice("v5p:4x4x4")))
    fsdp=64,tensor=8 | data=64,fsdp=1,zero=1
    >>> print(read_scheme("pp4 cp2 ep8 z1", parse_slice("h100:64")))
    context=2,expert=8,pipe=4,zero=1
    >>> print(read_scheme("dp+fsdp+tp", parse_slice("v5e:4x4")))
    data=4,fsdp=2,tensor=2
    """
    if "[" in text:
        raise InputError(
            f"{shorten(text)} is a chain of sharded einsums; `dscale shard` says what travels and how long it takes."
        )
    if not is_scheme(text):
        return parse_plan(text)
    names = text.strip().lower().split("+")
    for name in names:
        if name not in SCHEMES:
            raise unknown("parallelism called", name, SCHEMES)
    if len({SCHEMES[name] for name in names}) < len(names):
        raise InputError(f"{shorten(text)} names one parallelism twice; each takes part once.")
    others = len(names) - 1
    inner = next((one for one in INNER if piece.chips % one**others == 0 and piece.chips >= 2 * one**others), 0)
    if not inner and others:
        raise InputError(f"{shorten(text)} needs at least {2 ** len(names)} chips and {piece} has {piece.chips}.")
    sizes: dict[str, Any] = {SCHEMES[name]: inner for name in names[1:]}
    sizes[SCHEMES[names[0]]] = piece.chips // inner**others
    return Plan(**sizes, zero=3 if "fsdp" in names else 1)


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
    found = StepFormulas.of(job, plan)
    wanted = [name.strip() for name in solve.split(",")] if solve else ["batch"]
    solved = crossings(found.verdict, found.letters, wanted, plan)
    lines = [*_named(found, line)] if line else [*_overview(found)]
    work = f"{job.batch} sequences of {job.sequence:,} tokens"
    subject = f"{job.model.name} on {job.slice}: {short_plan(plan)}, {work}, {job.stack.name}"
    solutions = [_solution(one) for one in solved if one.value is not None]
    real = judge_one(job, plan)
    exposed = real.ledger.by("term", "exposed_s")
    told = [crossing_sentence(one, float(exposed.get(one.term, 0.0)), job.stack.name) for one in solved]
    terms = [] if line else _terms(job, real)
    return Explanation(subject, lines, told, [*_fitted(found, lines), *_notes(found, real)], solutions, terms)


def _terms(job: Job, real: Verdict) -> list[ExpectedTerm]:
    """Every term of the step from datasheet rates to what is expected, the longest exposed first."""
    rows = term_rows(real)
    step, found = sum(row.exposed_s for row in rows), list[ExpectedTerm]()
    kinds = {line.term: line.kind for line in real.ledger.lines}
    read = real.ledger.by("term", "hbm_bytes")
    for row in rows:
        took, held, kind = row.expected_s or 1.0, float(read[row.name]), kinds[row.name]
        part = f"{row.lower_s / took:.0%} of"
        why = _REST.get(kind, f"{part} datasheet rates")
        if kind == "host transfer":
            why = f"to the host and back at {render(job.slice.chip.host_link, 'bytes/s')} a chip, an estimate"
        elif row.name == "optimizer" and kind == "host":
            why = f"updated by the host's cores at {render(HOST_UPDATE, 'bytes/s')} a chip, an estimate"
        elif kind in COLLECTIVES:
            hidden = 1 - row.exposed_s / took
            why = f"{part} the wires' rate{f', {hidden:.0%} overlapped' if hidden > SEEN else ''}"
        elif row.flops and row.lower_s and kind != "optimizer":
            why = f"{part} the peak"
        elif held:
            why = f"{render(held, 'bytes')} at {held / took / job.slice.chip.bandwidth('hbm'):.0%} of HBM's rate"
        elif row.name == "stragglers":
            why = f"{row.exposed_s / (step - row.exposed_s):.1%} of the rest, for {job.slice.hosts} hosts"
        found.append(ExpectedTerm(row.name, row.lower_s, row.expected_s, row.exposed_s, why))
    return [*found, ExpectedTerm("step", float(real.upper), sum(row.expected_s for row in rows), step, "")]


SEEN = 0.005
"""A part of a term that overlaps is told of from here on."""
_REST = {"copy": "weights copied, gradients added in HBM", "host": "the host between kernels"}
"""Why terms without a formula take their time, by their kind."""


def _overview(found: StepFormulas) -> Iterator[FormulaLine]:
    ledger = found.verdict.ledger
    for term, seconds in ledger.by("term", "bound_s").items():
        if float(seconds) > 0:
            yield found.say(term, seconds, "s")
    for axes, sent in ledger.sent_bytes.items():
        yield found.say(f"bytes sent over {'+'.join(axes)}", sent, "bytes")
    yield found.say("matmul FLOPs of a chip", found.verdict.flops, "FLOP")
    for part, held in ledger.memory.items():
        if float(held) > 0:
            yield found.say(f"memory: {MEMORY_NAMES.get(part, part)}", held, "bytes")


def _named(found: StepFormulas, name: str) -> Iterator[FormulaLine]:
    """Lines by the name of what they make or move, their kind, term, part, phase or axes; tensors in
    memory by theirs."""
    ledger = found.verdict.ledger
    seen: dict[str, None] = {}
    count = 0
    if name in ledger.by("term", "times"):  # a term is all its lines together
        for key, words, unit in (*QUANTITIES, ("bound_s", "at datasheet rates", "s")):
            total = ledger.by("term", key)[name]
            if float(total):
                yield found.say(f"{name}, {words}", total, unit)
        return
    for line in ledger.lines:
        axes = "+".join(sorted(line.axes))
        names = (line.what, line.kind, line.term, line.part, line.phase, axes, *line.axes, *line.what.split("+"))
        seen |= dict.fromkeys(one for one in names if one)
        if name not in names:
            continue
        count += 1
        over = f" over {'+'.join(line.axes)}" if line.axes else ""
        label = f"{line.section}, {line.phase}: {line.what} ({line.kind}{over})"
        yield from found.say_line(line, label, "times a step")
    for held in ledger.held:
        part = MEMORY_NAMES.get(held.part, held.part)
        seen |= dict.fromkeys((held.what, part))
        if name in (held.what, held.part, part):
            count += 1
            yield found.say(f"memory, {part}: {held.what}", held.bytes, "bytes")
    if not count:
        raise unknown("line of this plan called", name, sorted(seen))


def _solution(one: Crossing) -> FormulaLine:
    text = formula_text(one.formula) if one.formula is not None else ""
    unit = {"batch": "tokens", "seq": "tokens", "chips": "chips"}.get(one.variable, "degree")
    return FormulaLine(f"{one.term}: {one.variable}", text, text, _size(one.value, unit), one.value, unit)


def _size(value: float | None, unit: str) -> str:
    """Tokens are whole; a degree that is solved for is not."""
    return f"{value:,.0f}" if unit.strip() == "tokens" else f"{value:,.4g}"


def crossing_sentence(one: Crossing, exposed: float, stack: str) -> str:
    """A crossover in words: what datasheet rates would allow, and what the stack leaves exposed of it."""
    they = "they" if one.term.endswith("s") else "it"
    left = f"; {stack} leaves {render(exposed, 's')} exposed" if exposed > 0 else ""
    could = "could hide under compute at datasheet rates"
    whole = one.variable in ("batch", "seq")
    if one.value is None or (one.value < 1 and not whole):  # no degree is below one
        always = one.hides in ("always", "above")
        size = one.variable if one.variable in ("batch", "seq", "chips") else f"{one.variable} degree"
        never = could.replace("could", "could never") if not always else could
        return f"{one.term} {never} whatever the {size}{left}"
    sign = ">" if one.hides == "above" else "<"
    unit = {"batch": " tokens", "seq": " tokens"}.get(one.variable, "")
    here = "" if (one.here > one.value) == (one.hides == "above") else " not"
    formula = f"{formula_text(one.formula)} = " if one.formula is not None else ""
    limit = f"{one.term} {could} if {one.variable} {sign} {formula}{_size(one.value, unit)}{unit}"
    if one.variable == "batch" and one.microbatches > 1:  # a batch of fewer or more of them crosses elsewhere
        limit += f" ({one.value / one.microbatches:,.0f} in each of {one.microbatches:,.4g} microbatches)"
    return f"{limit}; here {_size(one.here, unit)}, so {they} could{here}{left}"


def _fitted(found: StepFormulas, lines: list[FormulaLine]) -> list[str]:
    """The constants in some formulas that were fitted, with their values and on what."""
    used = {name for line in lines for name in letters_in(line.formula)}
    known = {name: told for name, told in found.letters.fitted.items() if name in used}
    return [f"{name} = {found.letters.values[name]:g}: {'; '.join(told)}." for name, told in known.items()]


def _notes(found: StepFormulas, real: Verdict) -> list[str]:
    held, limit = float(real.hbm_bytes), found.job.slice.chip.visible
    full = (
        f"This plan does not fit: it needs {render(held, 'bytes')} on the fullest chip, which has "
        f"{render(limit, 'bytes')}."
    )
    job, share = found.job, found.plan.replicas * found.plan.microbatch
    uneven = (
        f"This plan cannot run: {job.batch} sequences do not divide into {found.plan.replicas:,} replicas x "
        "microbatches of "
        f"{found.plan.microbatch}; what a microbatch sends is counted for {job.batch / share:.3g} of them."
    )
    compute = float(real.compute_s)
    wires = {term: float(value) for term, value in real.wires_s.items() if float(value) > 0}
    parts = {"compute": compute} | wires
    overlapped = ", ".join(f"{term} {render(value, 's')}" for term, value in parts.items())
    lower, upper, expected = (render(float(value), "s") for value in (real.lower, real.upper, real.seconds))
    used = {letter.name for line in found.verdict.ledger.lines for letter in expression(line.bound_s).free_symbols}
    rates = [
        f"{name} = {render(value, 'FLOP/s' if name.startswith('C') else 'bytes/s')}"
        for name, value in found.letters.values.items()
        if name[0] in "CW" and name in used
    ]
    largest = max(WIRES, key=lambda term: wires.get(term, 0.0))
    bound = largest if wires.get(largest, 0.0) > compute else "compute"
    return [
        *([uneven] if job.batch % share else []),
        *([full] if held > limit else []),
        f"At datasheet rates the step takes {lower} if everything overlaps ({overlapped}), {upper} if nothing does; "
        f"expected {expected}.",
        "B sequences of T tokens a step in microbatches of mb on each replica; D, F, N, K, H, V, E, k are the "
        "model's dims, "
        f"L its layers; mesh axes by their names; {', '.join(rates)}.",
        *_formats(found),
        f"Bound by {bound} at datasheet rates.",
    ]


def _formats(found: StepFormulas) -> list[str]:
    """In how many bytes things travel, as far as something does."""
    moving = {line.carries for line in found.verdict.ledger.lines if float(line.wire_bytes)}
    state, plan = found.job.stack.state, found.plan
    weight = min(2.0, dtype_bytes(plan.dtype)) if state.narrow_gathers else 2.0
    cast = f" (gathered over tensor for matmuls in {weight:g})" if weight < 2 and plan.tensor > 1 else ""
    widths = {
        "activation": ("activations", state.activation_bytes),
        "weight": ("weights", weight),
        "gradient": ("gradients", state.scatter_bytes if plan.zero == 3 else state.reduce_bytes),
    }
    told = [
        f"{name} in {bytes_:g} bytes{cast if kind == 'activation' else ''}"
        for kind, (name, bytes_) in widths.items()
        if kind in moving
    ]
    also = "; --wire takes another format for activations" if "activation" in moving else ""
    return [f"Matmuls in {plan.dtype}. Between chips travel {', '.join(told)}{also}."] if told else []


def explained_job(
    plan: str, model: Any, on: Any, batch: str, seq: str, stack: str, dtype: str, numerics: str = "", **tuned: Any
) -> tuple[Job, Plan]:
    """The job and the plan of `dscale explain train`."""
    words: dict[str, Any] = {"batch": batch, "seq": seq, "stack": stack, "dtype": dtype, "numerics": numerics}
    asked = read_question(TrainQuestion(model=model, on=on, **words, **tuned))
    if asked.job.slice is None:
        needs = "Formulas are those of a plan on a slice"
        raise InputError(f"{needs}; --on is {shorten(on)}, write e.g. v5p:4x4x4 or h100:64.")
    target = asked.job.slice
    split, chips = read_scheme(plan, target), target.chips
    if split.chips != chips:
        raise InputError(f"The plan {split} is for {split.chips} chips and {target} has {chips}; they must agree.")
    job, given = job_for(asked.job.on_slice(), split), frozenset[str]() if is_scheme(plan) else given_settings(plan)
    split, _ = read_ranks(split, given, job.stack.name, family(job.slice.chip))
    return job, split if "dtype" in given else replace(split, dtype=dtype)
