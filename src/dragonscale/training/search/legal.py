"""Why a stack, or a chip, cannot run a plan: what was asked for, what is supported instead, and the nearest plan that
runs.

What a stack supports is the table of `legality`; sizes that do not divide for any stack are in `space.misfits`.
"""

from typing import Any

from dragonscale.models.program import longest_run
from dragonscale.models.recompute_modules import is_modules
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.legality import FAMILIES, WORDS, Legality, family, native, rules
from dragonscale.training.plan.plan import AXES, HOSTED_STATE, HOSTED_WEIGHTS, Plan, layers_of, without_layers
from dragonscale.training.plan.stages import layout_for

# Formats of matmuls in training, the usual one first.
_FORMATS = ("bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4", "mxfp4", "fp4", "int8", "int4")


def dim_sizes(model: Transformer, dim: str) -> list[int]:
    """The size of a dim in each section of the model that has it, such as `e`, the experts."""
    return [section.dims[dim] for section in model.program().sections if dim in section.dims]


def trains_in(chip: Chip, row: Legality) -> tuple[str, ...]:
    """The formats that both the stack and the chip have, the stack's usual one first."""
    return tuple(dtype for dtype in row.formats.get(family(chip), ()) if native(chip, dtype))


def illegal(job: Job, plan: Plan) -> list[str]:
    """The reasons why the job's stack cannot run a plan on its chip, a clause each; empty if it can."""
    reasons = illegal_words(job, plan)
    row = rules(job.stack.name, family(job.slice.chip), plan.pipe > 1, job.tuning.tunes)
    microbatches = job.batch // (plan.replicas * plan.microbatch)
    in_rounds = plan.schedule in row.rounds and plan.schedule != "interleaved"  # which needs that under every stack
    if plan.pipe > 1 and in_rounds and microbatches % plan.pipe:
        takes_rounds = f"takes microbatches in multiples of pipe={plan.pipe} under {plan.schedule}"
        reasons.append(f"stack {job.stack.name} {takes_rounds}, and there are {microbatches}")
    return reasons + undivided_by(job, job.stack.name, row, plan)


def newly_illegal(job: Job, plan: Plan, changed: Plan) -> bool:
    """Whether a changed plan asks for something that the stack cannot run and the old plan did not ask for."""
    return not set(illegal(job, changed)) <= set(illegal(job, plan))


def illegal_words(job: Job, plan: Plan) -> list[str]:
    """The formats, axes and other settings of a plan that the stack does not support, a clause each."""
    chip, name = job.slice.chip, job.stack.name
    row = rules(name, family(chip), plan.pipe > 1, job.tuning.tunes)
    if not row.formats.get(family(chip)):
        runs = " and ".join(FAMILIES[name] for name, formats in row.formats.items() if formats and name in FAMILIES)
        return [f"stack {name} does not run on {chip.title}: it runs on {runs}; take --stack auto"]
    if lacking := uncomputed(name, row, job.model):
        return [f"{lacking}; take --stack auto"]
    reasons = _formats(chip, name, row, plan.dtype) or _experts_in(name, row, job.model, plan.dtype)
    for axis in AXES:
        is_data = axis == "fsdp" and plan.zero == 0  # `fsdp` that shards nothing is `data`
        if plan[axis] > 1 and axis not in row.axes and not is_data:
            reasons.append(_no_axis(job, name, row, plan, axis))
    for word in WORDS:
        if not takes(row, plan, word, job.experts > 0):
            reasons.append(refused(name, row, plan, word))
    return reasons


def uncomputed(name: str, row: Legality, model: Transformer) -> str:
    """A clause that a stack has no program for a model; empty if it has."""
    if not row.functions:
        return ""
    functions = {op.function for section in model.program().sections for op in section.ops}
    missing = sorted(functions.difference(row.functions))
    if not missing:
        return ""
    return f"stack {name} does not compute {' and '.join(missing)} of {model.name} yet"


def _experts_in(name: str, row: Legality, model: Transformer, dtype: str) -> list[str]:
    """A clause that a stack does not multiply a model's experts in a format; none if it does, or for a dense model."""
    if dtype not in row.dense_formats or not dim_sizes(model, "e"):
        return []
    return [f"stack {name} does not multiply experts in {dtype} yet; take dtype=bf16"]


def _formats(chip: Chip, name: str, row: Legality, dtype: str) -> list[str]:
    """A clause that the chip or the stack does not multiply in a format; none if both do."""
    supported = trains_in(chip, row)
    if not native(chip, dtype):
        has = [format_ for format_ in _FORMATS if native(chip, format_)]
        instead = (*supported, *has, "bf16")[0]
        return [f"{chip.title} has no {dtype} matmul, only {', '.join(has)}; take dtype={instead}"]
    if dtype in supported:
        return []
    reason = "it has no format of that chip"
    if supported:
        reason = f"it trains in {', '.join(supported)} there; take dtype={supported[0]}"
    return [f"stack {name} does not train in {dtype} on {chip.title}: {reason}{_because(row, 'formats')}"]


def _because(row: Legality, word: str) -> str:
    """The stack's reason for what it supports, in parentheses; empty where the table has none."""
    return f" ({row.because[word]})" if word in row.because else ""


def _no_axis(job: Job, name: str, row: Legality, plan: Plan, axis: str) -> str:
    """A clause that a stack does not have a mesh axis, and which one could take its degree."""
    degree, instead = plan[axis], "fsdp" if "fsdp" in row.axes else "data"
    # The batch is split by the axis already, or would be.
    ways = plan.replicas * plan.microbatch
    if axis not in ("data", "fsdp", "expert"):
        ways *= degree
    advice = "take --stack auto"
    if instead in row.axes and job.batch % ways == 0:
        advice = f"put its degree of {degree} into {instead}, or take --stack auto"
    return f"stack {name} has no {axis}={degree}, only {', '.join(row.axes)}{_because(row, 'axes')}; {advice}"


def matters(plan: Plan, word: str, experts: bool) -> bool:
    """Whether a setting of a plan makes a difference on its mesh."""
    if word in ("schedule", "layout"):
        return plan.pipe > 1
    if word == "zero":  # ZeRO-0 over `fsdp` alone is `data`
        return plan.expert * plan.context > 1 or (plan.fsdp > 1 and plan.zero > 0)
    if word in ("context_by", "fold"):
        return plan.context > 1 and (experts or word != "fold")
    if word in ("sequence", "etp"):
        return plan.tensor > 1 and (experts or word != "etp")
    return True


def entry(word: str, value: Any) -> Any:
    """The value of a setting as the table of legality names it."""
    if word == "remat" and is_modules(value):
        return "modules"
    if word in ("remat", "offload"):
        return without_layers(value)
    if word == "layout" and value not in ("even", "ends"):
        return "by stage"
    return value


def choices(row: Legality, plan: Plan, word: str) -> tuple[Any, ...]:
    """The values of a setting that a stack supports, given the other settings of a plan."""
    values = getattr(row, word)
    if word == "zero" and plan.optimizer in row.whole_optimizers:  # which take whole weights and gradients
        return tuple(stage for stage in values if stage < 2)
    if word == "offload":
        excluded: set[str] = set()
        if plan.optimizer not in (row.hosted_optimizers or row.optimizer):
            excluded |= set(HOSTED_STATE)
        if plan.zero != 3:  # weights that each layer fetches are those that ZeRO-3 gathers
            excluded.update(HOSTED_WEIGHTS)
        return tuple(value for value in values if value not in excluded)
    return values


def takes(row: Legality, plan: Plan, word: str, experts: bool = True) -> bool:
    """Whether a stack supports a setting of a plan, or the setting makes no difference."""
    return entry(word, plan[word]) in choices(row, plan, word) or not matters(plan, word, experts)


def nearest(row: Legality, plan: Plan, word: str) -> Any:
    """The supported value that is nearest to a setting of a plan: ZeRO's next lower stage, another form of the same
    value (`block` and `block:5`), or the usual one."""
    has, value = choices(row, plan, word), plan[word]
    if word == "remat" and value == "offload" and "block" in has:
        return "block"  # who moves activations to the host lacks memory: recompute them rather than keep them
    if word == "zero":
        return max((stage for stage in has if stage <= value), default=min(has))
    for choice in has:
        if str(choice).startswith(str(value)) or str(value).startswith(f"{choice}:"):
            return choice
    return has[0]


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def refused(name: str, row: Legality, plan: Plan, word: str) -> str:
    """A clause that a stack does not support a setting of a plan, and what it supports instead."""
    value, why = plan[word], word
    where = " with a pipeline" if plan.pipe > 1 and word in ("zero", "context_by") else ""
    if word == "zero" and value in row.zero and plan.optimizer in row.whole_optimizers:
        where, why = f" with optimizer={plan.optimizer}", "whole_optimizers"
    if word == "offload" and value in row.offload:
        where, why = f" with optimizer={plan.optimizer}", "hosted_optimizers"
    take = _written(nearest(row, plan, word))
    if word == "offload" and value in HOSTED_WEIGHTS and value in row.offload and plan.zero != 3:
        fetched = f"stack {name} fetches weights from the host where zero=3 gathers them"
        return f"{fetched}, not with zero={plan.zero}; take zero=3"
    supported = ", ".join(map(_written, choices(row, plan, word)))
    only = f"only {supported}{_because(row, why)}"
    return f"stack {name} cannot run {word}={_written(value)}{where}, {only}; take {word}={take}"


def undivided_by(job: Job, name: str, row: Legality, plan: Plan) -> list[str]:
    """The sizes that this stack in particular cannot divide as the plan asks, a clause each."""
    reasons: list[str] = []
    if not shares_kv(job, row, plan.tensor):
        kv = min(dim_sizes(job.model, "k"))
        why = f"{kv} KV heads cannot be split {plan.tensor} ways"
        if kv > plan.tensor:
            why = f"tensor={plan.tensor} does not divide {kv}"
        reasons.append(f"stack {name} gives a tensor rank whole KV heads, and {why}")
    # Where no other ranks have different experts, each may still be sliced over tensor.
    alone = row.whole_spread and plan.etp and plan.expert == 1
    if job.experts and not row.slices_experts and not alone and plan.expert * plan.tensor > job.experts:
        ways = f"expert={plan.expert} x tensor={plan.tensor}"
        reasons.append(
            f"stack {name} does not slice experts, and {job.experts} are fewer than {ways}{_because(row, 'etp')}"
        )
    spread = plan.expert
    if plan.fold == "context":
        spread *= plan.context
    if job.experts and row.whole_spread and plan.etp and plan.tensor > 1 and spread > 1:
        reasons.append(
            f"stack {name} slices experts over tensor only where no other ranks hold different ones, and {spread} do"
            f"{_because(row, 'etp')}; take etp=false"
        )
    order = job.model.program().order
    layers = len(order)
    if plan.pipe > 1 and not row.uneven and not deals(row, order, plan.pipe, plan.virtual, plan.layout):
        smaller = max(size for size in range(1, plan.pipe + 1) if deals(row, order, size, 1, "even"))
        chunks = f" x {plan.virtual} chunks" if plan.virtual > 1 else ""
        reasons.append(
            f"stack {name} has equal stages, and {layers} layers do not divide over pipe={plan.pipe}{chunks}; "
            f"take pipe={smaller}"
        )
    if row.one_kind and (why := unlike_stages(name, plan, job.model)):
        reasons.append(why)
    if layers_of(plan.offload) and plan.remat != "none":
        reasons.append(f"stack {name} recomputes nothing beside offload={plan.offload}; take remat=none")
    if layers_of(plan.offload) >= layers:
        reasons.append(f"stack {name} offloads fewer than all {layers} layers; take offload=activations:{layers - 1}")
    if row.ring_square and plan.ring and plan.context > 1 and job.sequence % plan.context**2:
        reasons.append(
            f"stack {name} needs sequences that context squared divides for a ring, and {job.sequence} is no "
            "multiple of "
            f"{plan.context**2}; take context_by=gather"
        )
    return reasons


def shares_kv(job: Job, row: Legality, tensor: int) -> bool:
    """Whether the stack splits KV heads over so many tensor ranks."""
    # One KV head is copied to every rank.
    return row.shared_kv or all(heads % tensor == 0 or heads <= 1 for heads in dim_sizes(job.model, "k"))


def counts_ends(row: Legality) -> bool:
    """Whether a search may count the embedding and the head as layers."""
    return "ends" in row.layout and not row.one_kind


def deals(row: Legality, order: tuple[str, ...], pipe: int, virtual: int, layout: str = "") -> bool:
    """Whether the stack deals layers to so many stages in a layout, or (without one) in that of a search."""
    layers, (_, run) = len(order), longest_run(order)
    if row.one_kind and pipe > 1:
        if run.times % (pipe * virtual):  # then shorter stages are padded
            return virtual == 1 and pipe <= run.times == layers
        return run.times * len(run.pattern) == layers
    named = layout or (layout_for(layers, pipe, virtual) if counts_ends(row) else "even")
    if named not in ("even", "ends"):
        return True
    slots, chunks = layers + 2 * (named == "ends"), pipe * virtual
    return chunks <= slots and (row.uneven or slots % chunks == 0)


def unrunnable(plan: Plan, model: Transformer | None = None) -> str:
    """Why our own program does not run a plan (of a model): what `dscale run train` and `dscale verify` say before they
    start; empty if they take it."""
    row = rules("dragonscale", "other", plan.pipe > 1)  # JAX runs alike on all chips
    formats = row.formats["other"]
    if plan.dtype not in formats:
        only = f"only in {', '.join(formats)}{_because(row, 'formats')}"
        return f"stack dragonscale does not train in {plan.dtype}, {only}; take dtype={formats[0]}"
    for word in WORDS:
        if not takes(row, plan, word):
            return refused("dragonscale", row, plan, word)
    if model is None:
        return ""
    if dense := _experts_in("dragonscale", row, model, plan.dtype):
        return dense[0]
    return unlike_stages("dragonscale", plan, model) or uncomputed("dragonscale", row, model)


def unlike_stages(name: str, plan: Plan, model: Transformer) -> str:
    """A clause that a stack whose stages are all of one kind of layer cannot deal a model's layers; empty if it can."""
    order, chunks = model.program().order, plan.pipe * plan.virtual
    alike = longest_run(order)[1].times  # layers in a row that are alike
    if plan.pipe > 1 and plan.layout != "even" and alike < len(order):
        return f"stack {name} has layout={plan.layout} where all layers are alike; take layout=even"
    if plan.pipe > 1 and alike + 2 * (plan.layout == "ends") < chunks:
        kind = f"stages of one kind of layer, and the longest run of equal ones has {alike}, fewer than {chunks}"
        return f"stack {name} has {kind} chunks; take pipe x virtual of at most {alike}"
    return ""
