"""The memory that a training step takes on one chip when XLA compiles it: named parts, and how many of each are alive.

State, saved activations and gradients are counted as they are. Beside them lies a working set, which is largest either
around the head (logits and what the loss makes of them, the head's weights and their gradient) or in a layer's backward pass
(gathered weights, the FFN's hidden dims, attention's block of scores, residuals, and their gradients). How many copies of each
are alive at once is the compiler's affair: the counts in `ALIVE` were fitted, for each compiler, on compiled programs
(`docs/verify.md` says on which and how far others are off).
"""

from dataclasses import dataclass

from dragonscale.evidence.verify.planned_moves import Work, room_of, rows_of
from dragonscale.models.activations import saved_tensors
from dragonscale.models.count import weight_size
from dragonscale.models.program import Program, Section
from dragonscale.notation import Array
from dragonscale.numbers import product
from dragonscale.runtime.attention import BLOCK
from dragonscale.runtime.place import TrainingPlace
from dragonscale.training.memory import OPTIMIZER_BYTES
from dragonscale.training.plan import Plan

FP32 = 4.0


@dataclass(frozen=True)
class Alive:
    """How many copies of a part are alive at the peak: of logits (in bf16) and of the head's weights around the head; of a layer's
    weights, its FFN's hidden dims, a block of scores (in fp32), the residual stream, and the rows sent to experts in a layer's
    backward pass."""

    logits: float
    head: float
    weights: float
    hidden: float
    scores: float
    residual: float
    rows: float


ALIVE = {
    "gpu": Alive(logits=3.3, head=1.9, weights=2.1, hidden=1.4, scores=3.2, residual=5.3, rows=7.7),
    "tpu": Alive(logits=3.4, head=0.25, weights=1.2, hidden=2.9, scores=2.05, residual=2.8, rows=3.1),
}


@dataclass(frozen=True)
class Parts:
    """Bytes on one chip, each once."""

    state: float
    tokens: float
    copy: float
    saved: float
    gradients: float
    added: float
    logits: float
    head: float
    weights: float
    hidden: float
    scores: float
    residual: float
    rows: float


def memory_parts(program: Program, plan: Plan, place: TrainingPlace, work: Work) -> Parts:
    """The named parts of a step's memory on one chip."""
    used = state = weights = head = hidden = scores = saved = rows = 0.0
    for section in program.sections:
        own, mine = _weights(section, place)
        used, state = used + own * section.repeat, state + mine * section.repeat
        if section.name == "head":
            head = _weights(section, place, tied=True)[0] * work.width
        elif section.name != "embed":
            weights = max(weights, own * work.width)
            hidden = max(hidden, _hidden(section, place, work))
            scores = max(scores, _scores(section, place, work))
            if "x" in section.dims:
                routed = rows_of(section, place, work) * room_of(section, place, work)
                rows = max(rows, routed * section.dims["d"] * work.width)
            saved += section.repeat * _saved(section, plan, place, work)
    logits = program.sections[-1].ops[-1].output
    assert logits is not None
    tokens = work.batch / place.ways(("data", "fsdp", "expert")) * work.sequence / place.ways(("context",))
    sharded = plan.zero == 3
    share = state if plan.zero >= 2 else used
    return Parts(
        state=state * (FP32 + OPTIMIZER_BYTES[plan.optimizer]),
        tokens=2 * 4.0 * tokens * work.microbatches,
        copy=0.0 if sharded else used * work.width,
        saved=saved,
        gradients=state * FP32 if sharded else used * work.width,
        added=share * FP32 if work.microbatches > 1 else 0.0,
        logits=_elements(logits, program.sections[-1], place, work) * 2.0,
        head=head,
        weights=weights,
        hidden=hidden,
        scores=scores,
        residual=tokens * program.sections[0].dims["d"] * work.width,
        rows=rows,
    )


def planned_memory(parts: Parts, alive: Alive) -> dict[str, float]:
    """The peak by part: what lies there all the time, and the larger of the two working sets."""
    around = {"logits": alive.logits * parts.logits, "head's weights": alive.head * parts.head}
    inside = {
        "gradients": parts.gradients,
        "gathered weights": alive.weights * parts.weights,
        "FFN hidden": alive.hidden * parts.hidden,
        "attention block": alive.scores * parts.scores,
        "residuals": alive.residual * parts.residual,
        "rows of experts": alive.rows * parts.rows,
    }
    working = max(around, inside, key=lambda each: sum(each.values()))
    return {
        "weights and optimizer": parts.state,
        "tokens": parts.tokens,
        "compute copy": parts.copy,
        "saved activations": parts.saved,
        "gradients added up": parts.added,
        **working,
    }


def _weights(section: Section, place: TrainingPlace, tied: bool = False) -> tuple[float, float]:
    """Elements of a section's weights on one chip, as they are used and as their state lies; what a head shares with the
    embedding counts there, unless `tied`."""
    used = state = 0.0
    seen: set[str] = set()
    for op in section.ops:
        for array in op.weights:
            if array.name in seen or (array.name in section.shared and section.name == "head" and not tied):
                continue
            seen.add(array.name)
            size = weight_size(section, array)
            used += size / place.ways(place.fit(place.rules.used(array), section.dims).axes)
            state += size / place.ways(place.fit(place.rules.state(array), section.dims).axes)
    return used, state


def _elements(array: Array, section: Section, place: TrainingPlace, work: Work) -> float:
    if "x" in array.names and array.names[-1] not in ("x", "e"):
        width = section.dims[array.names[-1]]
        return rows_of(section, place, work) * room_of(section, place, work) * width
    laid = place.fit(place.rules.activation(array), section.dims)
    sizes = {**section.dims, "b": work.batch, "t": work.sequence, "s": work.sequence}
    if "k" in sizes and place.copied("k", section.dims):
        sizes["k"] = 1
    return float(product(sizes[dim.name] / place.ways(dim.axes) for dim in laid.dims))


def _saved(section: Section, plan: Plan, place: TrainingPlace, work: Work) -> float:
    """What a layer keeps under the plan's policy; its input always, which the scan over layers hands on."""
    arrays = list(saved_tensors(section, plan.remat))
    entry = saved_tensors(section, "block")[0]
    if plan.remat != "block" and entry.name not in [array.name for array in arrays]:
        arrays.append(entry)
    return sum(_elements(array, section, place, work) for array in arrays) * work.width


def _hidden(section: Section, place: TrainingPlace, work: Work) -> float:
    acts = [op.output for op in section.ops if op.function == "act" and op.output is not None]
    return sum(_elements(array, section, place, work) for array in acts) * work.width


def _scores(section: Section, place: TrainingPlace, work: Work) -> float:
    """A block of queries against all the keys that are there at once."""
    largest = 0.0
    for op in section.ops:
        if op.function == "attend":
            query = place.fit(place.rules.activation(op.inputs[0]), section.dims)
            batch = work.batch / place.ways(query.dim("b").axes)
            tokens = work.sequence / place.ways(query.dim("t").axes)
            heads = section.dims["n"] / place.ways(query.dim("n").axes)
            block = BLOCK if tokens > BLOCK and tokens % BLOCK == 0 else tokens
            # The steps of a ring overlap: XLA has the scores of all of them alive, as many as of gathered keys.
            largest = max(largest, batch * heads * block * work.sequence * FP32)
    return largest
