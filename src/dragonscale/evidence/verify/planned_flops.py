"""The FLOPs of matrix products that a plan's training step does on one chip, as this project runs it.

Every product runs forward, for each of its operands' gradients, and again where its result is needed and was not kept
(`training.recompute`). Attention without a flash kernel computes the whole square of scores and masks it; its backward pass
computes them again. Experts work on as many rows as they have room for.
"""

from dragonscale.evidence.verify.planned_moves import Work, room_of, rows_of
from dragonscale.models.program import Op, Program, Section
from dragonscale.numbers import product
from dragonscale.runtime.attention import BLOCK
from dragonscale.runtime.place import TrainingPlace
from dragonscale.training.plan import Plan
from dragonscale.plan.recompute import again


def planned_flops(program: Program, plan: Plan, place: TrainingPlace, work: Work) -> dict[str, float]:
    """FLOPs of a step on one chip, by part of the model; attention's own products stand apart as `scores`."""
    found: dict[str, float] = {}
    for section in program.sections:
        inside = section.name not in ("embed", "head")
        lines = again(section, plan.remat) if inside else ()
        for op in section.ops:
            times = section.repeat * work.microbatches
            if op.function == "einsum":
                done = _product(section, op, place, work) * (3 + (op in lines))
                found[op.part] = found.get(op.part, 0.0) + times * done
            elif op.function == "attend":
                rerun = op in lines or place.rules.ring  # a ring runs again for the sums that its gradient needs
                found["scores"] = found.get("scores", 0.0) + times * _scores(section, op, rerun, place, work)
    return found


def _product(section: Section, op: Op, place: TrainingPlace, work: Work) -> float:
    """One product, forward."""
    dims = section.dims
    sizes = {**dims, "b": work.batch, "t": work.sequence, "s": work.sequence}
    if any(dim.select for weight in op.weights for dim in weight.dims):
        weight = place.fit(place.rules.used(op.weights[0]), dims)
        own = product(dims[dim.name] / place.ways(dim.axes) for dim in weight.dims if not dim.select)
        slices = tuple(axis for dim in weight.dims if not dim.select for axis in dim.axes)
        sliced = (
            place.ways(slices) if set(slices) & set(place.token_axes) else 1
        )  # rows of a slice's chips are gathered
        return 2.0 * rows_of(section, place, work) * room_of(section, place, work) * sliced * own
    split = place.computing(op, dims)
    if "k" in op.einsum.indices and place.copied("k", dims):
        sizes["k"] = 1
    return 2.0 * product(sizes[name] / place.ways(split.get(name, ())) for name in op.einsum.indices)


def _scores(section: Section, op: Op, rerun: bool, place: TrainingPlace, work: Work) -> float:
    """Attention forward and backward, and forward again where its result was not kept."""
    assert op.output is not None
    dims = section.dims
    query = place.fit(place.rules.activation(op.inputs[0]), dims)
    ways = place.ways(query.axes)
    key, value = dims[op.inputs[0].names[-1]], dims[op.output.names[-1]]
    pairs = 2.0 * work.batch * work.sequence * work.sequence * dims["n"] / ways
    forward, backward = key + value, 2 * key + 2 * value
    tokens = work.sequence // place.ways(query.dim("t").axes)
    apart = place.rules.ring or (tokens > BLOCK and tokens % BLOCK == 0)
    scored = (
        key if apart or not rerun else 0
    )  # the backward pass finds the scores again, unless the rerun has just done so
    return pairs * (forward + backward + scored + (forward if rerun else 0))
