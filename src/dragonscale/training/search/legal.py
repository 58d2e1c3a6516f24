"""Why a stack, or a chip, cannot run a plan: what was asked, what there is instead, and the nearest plan that runs.

What a stack takes is the table of `legality`; sizes that do not divide for any stack are in `space.misfits`.

What a plan means that gives data-parallel ranks and no `fsdp`: `tp8 pp4 dp16`, `dp16 z1`.

Here `data` are whole replicas and `fsdp` shards; elsewhere people write the data-parallel degree and the stage of
ZeRO that shards over it. So `dp16 z1` is `fsdp=16` with `zero=1`; without a stage it is what the stack's recipes run,
or whole replicas. A plan that names both axes means what it says, which is how plans are printed and saved.

>>> from dragonscale.training.plan.plan_file import given_settings, parse_plan
>>> def read(text, stack):
...     return str(read_ranks(parse_plan(text), given_settings(text), stack, "nvidia")[0])
>>> read("tp8 dp16 z1", "torchtitan"), read("tp8 dp16", "megatron-core"), read("tp8 dp16", "maxtext")
('fsdp=16,tensor=8,zero=1', 'fsdp=16,tensor=8,zero=1', 'data=16,tensor=8,zero=0')
>>> read("tp8 dp16 fsdp1 z1", "megatron-core")
'data=16,fsdp=1,tensor=8,zero=1'
"""

from dataclasses import replace
from typing import Any

from dragonscale.models.program import longest_run
from dragonscale.models.recompute_modules import is_modules
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.legality import FAMILIES, WORDS, Legality, family, native, rules
from dragonscale.training.plan.plan import AXES, HOSTED_STATE, Plan, layers_of, without_layers
from dragonscale.training.plan.stages import layout_for

_FORMATS = ("bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4", "mxfp4", "fp4", "int8", "int4")
"""What matrices are multiplied in while training, the usual one first."""


def trains_in(chip: Chip, row: Legality) -> tuple[str, ...]:
    """The formats that both the stack and the chip have, the stack's usual one first."""
    return tuple(dtype for dtype in row.formats.get(family(chip), ()) if native(chip, dtype))


def illegal(job: Job, plan: Plan) -> list[str]:
    """Why the job's stack cannot run a plan on its chip, a clause each; empty if it can."""
    found = illegal_words(job, plan)
    row = rules(job.stack.name, family(job.slice.chip), plan.pipe > 1, job.tuning.tunes)
    rounds = job.batch // (plan.replicas * plan.microbatch)
    if plan.pipe > 1 and plan.schedule in row.rounds and plan.schedule != "interleaved" and rounds % plan.pipe:
        takes_rounds = f"takes microbatches in multiples of pipe={plan.pipe} under {plan.schedule}"
        found.append(f"stack {job.stack.name} {takes_rounds}, and there are {rounds}")
    return found + undivided_by(job, job.stack.name, row, plan)


def newly_illegal(job: Job, plan: Plan, changed: Plan) -> bool:
    """Whether a change of a plan asks for something that the stack cannot run and the plan did not ask for."""
    return not set(illegal(job, changed)) <= set(illegal(job, plan))


def illegal_words(job: Job, plan: Plan) -> list[str]:
    """What of a plan's formats, axes and words the stack does not have."""
    chip, name = job.slice.chip, job.stack.name
    row = rules(name, family(chip), plan.pipe > 1, job.tuning.tunes)
    if not row.formats.get(family(chip)):
        runs = " and ".join(FAMILIES[one] for one, formats in row.formats.items() if formats and one in FAMILIES)
        return [f"stack {name} does not run on {chip.title}: it runs on {runs}; take --stack auto"]
    if lacking := uncomputed(name, row, job.model):
        return [f"{lacking}; take --stack auto"]
    found = _formats(chip, name, row, plan.dtype) or _experts_in(name, row, job.model, plan.dtype)
    found += [_no_axis(job, name, row, plan, axis) for axis in AXES if not _has_axis(row, plan, axis)]
    found += [refused(name, row, plan, word) for word in WORDS if not takes(row, plan, word, job.experts > 0)]
    return found


def uncomputed(name: str, row: Legality, model: Transformer) -> str:
    """That a stack has no program for a model; empty if it has."""
    functions = {op.function for section in model.program().sections for op in section.ops}
    missing = sorted(functions.difference(row.functions)) if row.functions else []
    return f"stack {name} does not compute {' and '.join(missing)} of {model.name} yet" if missing else ""


def _experts_in(name: str, row: Legality, model: Transformer, dtype: str) -> list[str]:
    """That a stack does not multiply a model's experts in a format; empty if it does, or there are none."""
    if dtype not in row.dense_formats or not any("e" in section.dims for section in model.program().sections):
        return []
    return [f"stack {name} does not multiply experts in {dtype} yet; take dtype=bf16"]


def _formats(chip: Chip, name: str, row: Legality, dtype: str) -> list[str]:
    if not native(chip, dtype):
        has = [one for one in _FORMATS if native(chip, one)]
        near = next(iter(trains_in(chip, row)), has[0] if has else "bf16")
        return [f"{chip.title} has no {dtype} matmul, only {', '.join(has)}; take dtype={near}"]
    here = trains_in(chip, row)
    if dtype in here:
        return []
    there = f"it trains in {', '.join(here)} there; take dtype={here[0]}" if here else "it has no format of that chip"
    return [f"stack {name} does not train in {dtype} on {chip.title}: {there}{_because(row, 'formats')}"]


def _because(row: Legality, word: str) -> str:
    return f" ({row.because[word]})" if word in row.because else ""


def _has_axis(row: Legality, plan: Plan, axis: str) -> bool:
    # `fsdp` that shards nothing is `data`.
    return getattr(plan, axis) == 1 or axis in row.axes or (axis == "fsdp" and plan.zero == 0)


def _no_axis(job: Job, name: str, row: Legality, plan: Plan, axis: str) -> str:
    degree, instead = getattr(plan, axis), "fsdp" if "fsdp" in row.axes else "data"
    ways = plan.replicas * plan.microbatch * (1 if axis in ("data", "fsdp", "expert") else degree)
    rest = "take --stack auto"
    if instead in row.axes and job.batch % ways == 0:
        rest = f"put its degree of {degree} into {instead}, or take --stack auto"
    return f"stack {name} has no {axis}={degree}, only {', '.join(row.axes)}{_because(row, 'axes')}; {rest}"


def matters(plan: Plan, word: str, experts: bool) -> bool:
    """Whether a word of a plan makes a difference to its mesh."""
    if word in ("schedule", "layout"):
        return plan.pipe > 1
    if word == "zero":  # ZeRO-0 over `fsdp` alone is `data`
        return plan.expert * plan.context > 1 or (plan.fsdp > 1 and plan.zero > 0)
    if word in ("context_by", "fold"):
        return plan.context > 1 and (experts or word != "fold")
    return plan.tensor > 1 and (experts or word != "etp") if word in ("sequence", "etp") else True


def entry(word: str, value: Any) -> Any:
    """A choice of a word as the table names it."""
    if word == "remat" and is_modules(value):
        return "modules"
    if word in ("remat", "offload"):
        return without_layers(value)
    return "by stage" if word == "layout" and value not in ("even", "ends") else value


def choices(row: Legality, plan: Plan, word: str) -> tuple[Any, ...]:
    """What a stack takes of a word in a plan."""
    every = getattr(row, word)
    if word == "offload":
        hosts = plan.optimizer in (row.hosted_optimizers or row.optimizer)
        every = tuple(one for one in every if hosts or one not in HOSTED_STATE)
        # weights that each layer fetches are those that ZeRO-3 gathers
        return tuple(one for one in every if plan.zero == 3 or one != "parameters")
    return tuple(one for one in every if one < 2) if word == "zero" and _whole(row, plan) else every


def _whole(row: Legality, plan: Plan) -> bool:
    return plan.optimizer in row.whole_optimizers


def takes(row: Legality, plan: Plan, word: str, experts: bool = True) -> bool:
    """Whether a stack takes a word of a plan."""
    return entry(word, getattr(plan, word)) in choices(row, plan, word) or not matters(plan, word, experts)


def nearest(row: Legality, plan: Plan, word: str) -> Any:
    """What a stack has in place of a word of a plan: ZeRO's next lower stage, or what is usual."""
    has, value = choices(row, plan, word), getattr(plan, word)
    if word == "zero":
        return max((one for one in has if one <= value), default=min(has))
    return next((one for one in has if str(one).startswith(str(value)) or str(value).startswith(f"{one}:")), has[0])


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def refused(name: str, row: Legality, plan: Plan, word: str) -> str:
    """That a stack does not take a word of a plan, and what it has."""
    has, value, why = [_written(one) for one in choices(row, plan, word)], getattr(plan, word), word
    where = " with a pipeline" if plan.pipe > 1 and word in ("zero", "context_by") else ""
    if word == "zero" and value in row.zero and _whole(row, plan):
        where, why = f" with optimizer={plan.optimizer}", "whole_optimizers"
    if word == "offload" and value in row.offload:
        where, why = f" with optimizer={plan.optimizer}", "hosted_optimizers"
    take = _written(nearest(row, plan, word))
    if word == "offload" and value == "parameters" and value in row.offload and plan.zero != 3:
        fetched = f"stack {name} fetches weights from the host where zero=3 gathers them"
        return f"{fetched}, not with zero={plan.zero}; take zero=3"
    only = f"only {', '.join(has)}{_because(row, why)}"
    return f"stack {name} cannot run {word}={_written(value)}{where}, {only}; take {word}={take}"


def undivided_by(job: Job, name: str, row: Legality, plan: Plan) -> list[str]:
    """Sizes that this stack wants divided otherwise than others do."""
    found: list[str] = []
    if not shares_kv(job, row, plan.tensor):
        kv = min(section.dims["k"] for section in job.model.program().sections if "k" in section.dims)
        why = f"{kv} KV heads cannot be split {plan.tensor} ways"
        if kv > plan.tensor:
            why = f"tensor={plan.tensor} does not divide {kv}"
        found.append(f"stack {name} gives a tensor rank whole KV heads, and {why}")
    alone = row.whole_spread and plan.etp and plan.expert == 1
    if job.experts and not row.slices_experts and not alone and plan.expert * plan.tensor > job.experts:
        ways = f"expert={plan.expert} x tensor={plan.tensor}"
        found.append(
            f"stack {name} does not slice experts, and {job.experts} are fewer than {ways}{_because(row, 'etp')}"
        )
    spread = plan.expert * (plan.context if plan.fold == "context" else 1)
    if job.experts and row.whole_spread and plan.etp and plan.tensor > 1 and spread > 1:
        found.append(
            f"stack {name} slices experts over tensor only where no other ranks hold different ones, and {spread} do"
            f"{_because(row, 'etp')}; take etp=false"
        )
    order = job.model.program().order
    layers = len(order)
    if plan.pipe > 1 and not row.uneven and not deals(row, order, plan.pipe, plan.virtual, plan.layout):
        near = max(size for size in range(1, plan.pipe + 1) if deals(row, order, size, 1, "even"))
        chunks = f" x {plan.virtual} chunks" if plan.virtual > 1 else ""
        found.append(
            f"stack {name} has equal stages, and {layers} layers do not divide over pipe={plan.pipe}{chunks}; "
            f"take pipe={near}"
        )
    if row.one_kind and (why := unlike_stages(name, plan, job.model)):
        found.append(why)
    if layers_of(plan.offload) and plan.remat != "none":
        found.append(f"stack {name} recomputes nothing beside offload={plan.offload}; take remat=none")
    if layers_of(plan.offload) >= layers:
        found.append(f"stack {name} offloads fewer than all {layers} layers; take offload=activations:{layers - 1}")
    if row.ring_square and plan.ring and plan.context > 1 and job.sequence % plan.context**2:
        found.append(
            f"stack {name} needs sequences that context squared divides for a ring, and {job.sequence} is no "
            "multiple of "
            f"{plan.context**2}; take context_by=gather"
        )
    return found


def shares_kv(job: Job, row: Legality, tensor: int) -> bool:
    """Whether the stack splits KV heads over so many tensor ranks."""
    heads = [section.dims["k"] for section in job.model.program().sections if section.dims.get("k", 0) > 1]
    return row.shared_kv or all(count % tensor == 0 for count in heads)


def counts_ends(row: Legality) -> bool:
    """Whether a search may count the embedding and the head as layers."""
    return "ends" in row.layout and not row.one_kind


def deals(row: Legality, order: tuple[str, ...], pipe: int, virtual: int, layout: str = "") -> bool:
    """Whether the stack deals layers to so many stages in a layout, or (without one) in that of a search."""
    layers, (_, run) = len(order), longest_run(order)
    if row.one_kind and pipe > 1 and run.times % (pipe * virtual):  # then its shorter stages are filled up
        return virtual == 1 and pipe <= run.times == layers
    if row.one_kind and pipe > 1:
        return run.times * len(run.pattern) == layers
    named = layout or (layout_for(layers, pipe, virtual) if counts_ends(row) else "even")
    if named not in ("even", "ends"):
        return True
    slots, chunks = layers + 2 * (named == "ends"), pipe * virtual
    return chunks <= slots and (row.uneven or slots % chunks == 0)


def unrunnable(plan: Plan, model: Transformer | None = None) -> str:
    """Why our own program does not run a plan (of a model): what `dscale run train` and `dscale verify` say before they
    start; empty if they take it."""
    row = rules("dragonscale", "other", plan.pipe > 1)
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
    """That a stack whose stages are all of one kind of layer cannot deal a model's layers; empty if it can."""
    order, chunks = model.program().order, plan.pipe * plan.virtual
    most = longest_run(order)[1].times
    if plan.pipe > 1 and plan.layout != "even" and most < len(order):
        return f"stack {name} has layout={plan.layout} where all layers are alike; take layout=even"
    if plan.pipe > 1 and most + 2 * (plan.layout == "ends") < chunks:
        kind = f"stages of one kind of layer, and the longest run of equal ones has {most}, fewer than {chunks}"
        return f"stack {name} has {kind} chunks; take pipe x virtual of at most {most}"
    return ""


def read_ranks(plan: Plan, given: frozenset[str], stack: str, chips: str) -> tuple[Plan, str]:
    """The plan with the axis that its data-parallel ranks are meant to be, and a note on what was not written. `given`
    are the settings that were named; `chips` is the family of the chips."""
    row, ranks = rules(stack, chips, plan.pipe > 1), plan.data
    if not given & {"data", "fsdp", "zero"} and plan.data * plan.fsdp == 1 < plan.expert and row.data_zero:
        sharded = replace(plan, zero=row.data_zero)
        return sharded, f"ep{plan.expert} names no ZeRO and is read as in {stack}'s recipes, zero={sharded.zero}."
    if "data" not in given or "fsdp" in given or plan.data == 1:
        return plan, ""
    stage = plan.zero if "zero" in given else row.data_zero
    if stage:
        sharded = replace(plan, data=1, fsdp=ranks, zero=stage)
        if "zero" in given:
            whole = f"data={ranks},fsdp=1: whole replicas"
            return sharded, f"data={ranks} with zero={stage} is read as fsdp={ranks}: ZeRO shards over it ({whole})."
        recipes = f"as the distributed optimizer of {stack}'s recipes, fsdp={ranks} with zero={stage}"
        return sharded, f"data={ranks} names no ZeRO and is read {recipes} (zero=0: whole replicas)."
    replicas = replace(plan, zero=0)
    if "zero" in given or not takes(row, replicas, "zero"):
        return plan, ""
    return replicas, (
        f"data={ranks} is read as whole replicas: ZeRO is off by default, so nothing is sharded; write fsdp={ranks} to "
        "shard weights, gradients and the optimizer's state."
    )


def own_ranks(plan: Plan, given: frozenset[str]) -> Plan:
    """The same for our own program, which runs alike on all chips."""
    return read_ranks(plan, given, "dragonscale", "other")[0]
