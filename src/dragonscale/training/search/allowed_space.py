"""What a search may offer: of a space, the part that the job's stack can run on its chip.

Words that no one asked for give way to what the stack has (bf16 to fp16 on a chip without bf16); words that were asked
for and that it does not have are refused in a sentence (`refusals`), unless the space is forced.

Plans that a stack runs and its makers advise against on some chips: judged where given, not offered by a search.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> def notes(on, plan):
...     job = make_job(load_model("llama3-70b"), parse_slice(on), 128, 8192, "megatron-core")
...     return len(advice_against(job, parse_plan(plan)))
>>> notes("h100:64", "fsdp16 tp4 z3"), notes("h100:64", "fsdp64 z3"), notes("gb200:64", "fsdp16 tp4 z3")
(1, 0, 0)
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy

from dragonscale.models.activations import saved_tensors
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.legality import AdvisedAgainst, Legality, family, native, rules
from dragonscale.training.plan.plan import AXES, HOSTED_STATE, HOSTED_WEIGHTS, SOME_LAYERS, Plan, layers_of
from dragonscale.training.search.legal import (
    choices,
    entry,
    illegal_words,
    nearest,
    refused,
    takes,
    trains_in,
    undivided_by,
)
from dragonscale.training.search.space import Kind, Space, meshes, select_rows

_CHOICES = ("schedule", "context_by", "remat", "fold")
_FIXED = ("optimizer", "offload", "layout", "sequence", "etp")
_SHOWN_BY = {"zero": "fsdp", "schedule": "pipe", "context_by": "context", "fold": "context"}
"""The axis along which a word makes a difference."""
SAMPLE = 64
"""Meshes that are looked at for the rule that they break."""


def _rows(job: Job) -> tuple[Legality, Legality]:
    """What the stack supports without a pipeline, and with one."""
    name, chips, tuned = job.stack.name, family(job.slice.chip), job.tuning.tunes
    return rules(name, chips, piped=False, tuned=tuned), rules(name, chips, piped=True, tuned=tuned)


def offered(job: Job, space: Space) -> Space:
    """The space with what the stack has of each word. What was asked for and is not there stays, for `refusals` to
    name."""
    alone, piped = _rows(job)
    changed: dict[str, Any] = {}
    for word in _CHOICES:
        requested, has = getattr(space, word), (*getattr(alone, word), *getattr(piped, word))
        # What the stack supports of what was asked for; all that it supports if nothing was.
        legal = tuple(value for value in requested if entry(word, value) in has)
        if not legal and requested == getattr(Space(), word):
            legal = tuple(dict.fromkeys(value for value in has if value not in ("modules", SOME_LAYERS)))
        changed[word] = legal or requested
    if alone.selective and space.remat == Space().remat:
        module_sets = freeing_modules(job.model, alone.selective)
        policies: list[str] = []
        for policy in changed["remat"]:
            # `selective` stands for the sets of modules that the stack recomputes.
            policies += module_sets if policy == "selective" else (policy,)
        changed["remat"] = tuple(policies)
    if space.remat == Space().remat and len(changed["remat"]) > 1:
        # Activations in the host's memory are for what does not fit otherwise: a search falls back on them.
        changed["remat"] = tuple(policy for policy in changed["remat"] if policy != "offload")
    free = space.remat == Space().remat and SOME_LAYERS in alone.remat and {"none", "block"} <= {*changed["remat"]}
    if free and not job.experts:  # of MoE models the usual knob is modules, and what is enough hangs on their load
        changed["remat"] += (SOME_LAYERS,)  # as many as let a plan fit
    usual_remat = _tuned_remat(job, alone)
    if usual_remat and not job.auto and space.remat == Space().remat:
        # Software that was named is planned as it is launched; less recompute is advice on that plan.
        changed["remat"] = (usual_remat,)
    fixed = space.fixed
    if space.words.offload in HOSTED_WEIGHTS:  # weights that are fetched are those that ZeRO-3 gathers, in one stage
        changed["zero"], fixed = (3,), {"pipe": 1} | fixed
    if layers_of(space.words.offload):  # which excludes recompute and a pipeline
        changed["remat"] = tuple(policy for policy in changed["remat"] if policy == "none") or changed["remat"]
        fixed = {"pipe": 1} | fixed
    if "1f1b" in changed["schedule"] and len(changed["schedule"]) > 1:
        # GPipe has the bubble of 1F1B and holds more.
        changed["schedule"] = tuple(schedule for schedule in changed["schedule"] if schedule != "gpipe")
    space = replace(space, **changed, fixed=fixed, words=_settled(job, alone, space))
    whole = replace(space, words=replace(space.words, sequence=False))
    if "sequence" in space.named or False not in alone.sequence:
        return space
    # Tensor ranks that do not divide a sequence keep whole ones between their matmuls, where nothing else is left.
    if not len(meshes(job, space)["tensor"]) and len(meshes(job, whole)["tensor"]):
        return whole
    return space


def ruling_out(job: Job, space: Space) -> list[str]:
    """Where a stack runs nothing of a space: the rule that most meshes break, in a sentence."""
    # Plans of a sample of all meshes, judged by the rules as if they were given.
    forced, broken_rules = replace(offered(job, space), force=True), Counter[str]()
    mesh = meshes(job, forced)
    for index in range(0, len(mesh["pipe"]), max(1, len(mesh["pipe"]) // SAMPLE)):
        sizes = {axis: int(mesh[axis][index]) for axis in AXES}
        plan = settled(job, replace(forced.words, **sizes), space.named)
        row = rules(job.stack.name, family(job.slice.chip), plan.pipe > 1, job.tuning.tunes)
        broken_rules.update([*illegal_words(job, plan), *undivided_by(job, job.stack.name, row, plan)])
    return [f"The rule in the way: {text}." for text, _ in broken_rules.most_common(1)]


def freeing_modules(model: Transformer, sets: tuple[str, ...]) -> tuple[str, ...]:
    """Sets of modules, of each what frees something in a block of the model.

    >>> from dragonscale.models import load_model
    >>> freeing_modules(load_model("llama3-8b"), ("layernorm+moe_act", "layernorm+mlp+moe_act+mla_up_proj"))
    ('mlp',)
    """
    blocks = [section for section in model.program().sections if "block" in section.name]

    def frees(module: str) -> bool:
        return any(len(saved_tensors(section, module)) < len(saved_tensors(section, "none")) for section in blocks)

    freeing: list[str] = []
    for modules in sets:
        useful = "+".join(filter(frees, modules.split("+")))
        if useful and useful not in freeing:
            freeing.append(useful)
    return tuple(freeing)


def fallback(job: Job, requested: Space, tried: Space) -> Space | None:
    """What is left to try where nothing fits: activations in the host's memory."""
    alone, piped = _rows(job)
    if requested.remat != Space().remat or "offload" in tried.remat:
        return None
    if "offload" not in alone.remat and "offload" not in piped.remat:
        return None
    return replace(tried, remat=("offload",))


def _settled(job: Job, row: Legality, space: Space) -> Plan:
    """Words that no one asked for, as the stack has them."""
    settings, usual, formats = space.words, Plan(), trains_in(job.slice.chip, row)
    if "optimizer" not in space.named and settings.optimizer == usual.optimizer:
        settings = replace(settings, optimizer=_tuned_optimizer(job, row, settings.offload))
    if settings.dtype == usual.dtype and formats and settings.dtype not in formats:
        settings = replace(settings, dtype=formats[0])
    wide = replace(settings, pipe=2, tensor=2)  # on which every setting makes a difference
    for word in _FIXED:
        value = getattr(settings, word)
        if value == getattr(usual, word) and not takes(row, wide, word, job.experts > 0):
            settings = replace(settings, **{word: nearest(row, settings, word)})
    return settings


def settled(job: Job, plan: Plan, named: frozenset[str]) -> Plan:
    """A plan whose words that were not given are what the stack has."""
    row = rules(job.stack.name, family(job.slice.chip), plan.pipe > 1, job.tuning.tunes)
    formats = trains_in(job.slice.chip, row)
    if "dtype" not in named and formats and plan.dtype not in formats:
        plan = replace(plan, dtype=formats[0])
    if "optimizer" not in named and plan.optimizer == Plan().optimizer:
        plan = replace(plan, optimizer=_tuned_optimizer(job, row, plan.offload))
    usual_remat = _tuned_remat(job, row) if job.tuning.tunes else row.plan_remat
    if usual_remat and "remat" not in named and plan.remat == Plan().remat:
        plan = replace(plan, remat=usual_remat)
    for word in ("zero", *_CHOICES, *_FIXED):
        if word not in named and not takes(row, plan, word, job.experts > 0):
            plan = replace(plan, **{word: nearest(row, plan, word)})
    if plan.schedule == "interleaved" and plan.virtual == 1 and "gpipe" in row.schedule and "schedule" not in named:
        plan = replace(plan, schedule="gpipe")
    return plan


def _tuned_optimizer(job: Job, row: Legality, offload: str) -> str:
    """The optimizer that a stack trains every weight with by default; the host's cores have Adam in fp32."""
    if not job.tuning.tunes or job.tuning.rank or offload in HOSTED_STATE:
        return Plan().optimizer
    return row.tuned_optimizer or Plan().optimizer


def _tuned_remat(job: Job, row: Legality) -> str:
    """The recompute that a stack fine-tunes with by default; empty where there is none."""
    if not job.tuning.tunes:
        return ""
    return row.usual_remat(quantized=job.tuning.quantized)


def settlements(before: Plan, after: Plan, stack: str) -> list[str]:
    """What was taken for words that were not given, in a note."""
    chosen: list[str] = []
    for name in ("dtype", "zero", *_CHOICES, *_FIXED):
        value = getattr(after, name)
        if value != getattr(before, name):
            chosen.append(f"{name}={str(value).lower()}")
    if not chosen:
        return []
    return [f"Taken as {stack} has it there: {', '.join(chosen)}."]


def other_format(chip: Chip, before: Plan, after: Plan) -> list[str]:
    """That matrices are multiplied in another format than the one that was asked for, or is usual, because the chip
    does not have it."""
    if before.dtype == after.dtype or native(chip, before.dtype):
        return []
    return [f"{chip.title} has no {before.dtype} matmul: everything is judged in {after.dtype}."]


def refusals(job: Job, requested: Space) -> list[str]:
    """Why nothing that was asked for can run: a plan with what is pinned, judged; empty if something
    can, or is forced."""
    if requested.force:
        return []
    space, (alone, piped) = offered(job, requested), _rows(job)
    # One plan with everything that is fixed, and the stack's usual values for the rest.
    pinned = replace(space.words, **(space.fixed | {"virtual": 1}))
    row = piped if pinned.pipe > 1 else alone
    usual = replace(pinned, **{word: getattr(row, word)[0] for word in ("zero", *_CHOICES)})
    if layers_of(pinned.offload):
        usual = replace(usual, remat=space.remat[0])
    reasons = [*illegal_words(job, usual), *undivided_by(job, job.stack.name, row, usual)]
    for word in ("zero", *_CHOICES):
        axis, wanted = _SHOWN_BY.get(word, ""), getattr(space, word)
        here = piped if axis == "pipe" else row
        moot = space.fixed.get(axis) == 1 or (axis and axis not in here.axes)
        if not moot and not any(entry(word, value) in getattr(here, word) for value in wanted):
            shown = replace(pinned, **{word: wanted[0]})
            if axis:  # on a mesh where the word makes a difference
                shown = replace(shown, **{axis: max(2, getattr(pinned, axis))})
            reasons.append(refused(job.stack.name, here, shown, word))
    return reasons


def offered_words(job: Job, space: Space, kind: Kind, block: dict[str, Any]) -> list[Plan]:
    """The words of rows of a kind that the stack takes; all of them have a pipeline or none has, and they are alike in
    what is advised against."""
    row = _rows(job)[bool(block["pipe"][-1] > 1)]
    left_out: set[int] = set()  # stages of ZeRO that are tried only when asked for
    if "zero" not in space.named:
        left_out.update(row.unreleased_zero)
        for advice in advice_on(job.slice.chip, row):
            if concerned(advice, block)[-1]:
                left_out.update(advice.zero)
    zero = space.zero
    if kind.state:
        zero = tuple(stage for stage in choices(row, space.words, "zero") if stage not in left_out)
    return [
        settings
        for settings in kind.words(space)
        if space.force or (settings.zero in zero and (not kind.context or settings.context_by in row.context_by))
    ]


def offered_alike(job: Job, table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a table, sorted by their stages, in parts that `offered_words` offers the same words: those without a
    pipeline and those with one, each by what is advised against."""
    alone, piped = _rows(job)
    advice = (advice_on(job.slice.chip, alone), advice_on(job.slice.chip, piped))
    if not any(advice) and (alone.zero, alone.context_by) == (piped.zero, piped.context_by):
        yield table
        return
    # Rows are sorted by their stages, those without a pipeline first.
    staged = int(numpy.searchsorted(table["pipe"], 2))
    for rows, advised in zip((slice(0, staged), slice(staged, None)), advice, strict=True):
        part = select_rows(table, rows)
        kinds = numpy.zeros(len(part["pipe"]), int)
        for advice_row in advised:
            kinds = 2 * kinds + concerned(advice_row, part)
        for kind in numpy.unique(kinds):
            yield select_rows(part, kinds == kind)


def advice_on(chip: Chip, row: Legality) -> tuple[AdvisedAgainst, ...]:
    """What a stack's makers advise against on a chip, of what it runs."""
    advised: list[AdvisedAgainst] = []
    for advice in row.advised_against:
        if not set(advice.zero).isdisjoint(row.zero) and not native(chip, advice.without):
            advised.append(advice)
    return tuple(advised)


def concerned(advice: AdvisedAgainst, degrees: dict[str, Any]) -> Any:
    """Which meshes an advice is about, whatever their stage of ZeRO."""
    return numpy.any([numpy.asarray(degrees[axis]) > 1 for axis in advice.beside], axis=0)


def advice_against(job: Job, plan: Plan) -> list[str]:
    """Why a plan is not recommended though it runs, a sentence each."""
    reasons = []
    for advice in advice_on(
        job.slice.chip, rules(job.stack.name, family(job.slice.chip), plan.pipe > 1, job.tuning.tunes)
    ):
        sharded = plan.fsdp * plan.expert * plan.context > 1 and plan.zero in advice.zero
        if sharded and concerned(advice, {axis: getattr(plan, axis) for axis in AXES}):
            axes = " and ".join(f"{axis}={getattr(plan, axis)}" for axis in advice.beside if getattr(plan, axis) > 1)
            reasons.append(f"zero={plan.zero} with {axes} is not recommended: {advice.why} ({advice.source}).")
    return reasons


def not_offered(job: Job) -> list[str]:
    """What a search leaves out by advice, a sentence each, for where it finds nothing."""
    reasons = []
    for advice in advice_on(job.slice.chip, rules(job.stack.name, family(job.slice.chip), tuned=job.tuning.tunes)):
        plans = f"zero={' or '.join(map(str, advice.zero))} with {' or '.join(advice.beside)}"
        reasons.append(f"Not offered: {plans}. {advice.why}; --fix zero={advice.zero[-1]} tries it.")
    return reasons
