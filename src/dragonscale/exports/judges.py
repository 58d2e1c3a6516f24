"""Which stack or engine judges a plan that is written for a target: the plan's own where the target runs it."""

from dragonscale.exports.target import Target
from dragonscale.serving.engine.auto import NODE
from dragonscale.serving.engine.legality import rules, server_of
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.stack import stacks


def stack_for(target: Target, named: str) -> str:
    """The stack that judges: the plan's own where the target runs it, the target's otherwise.

    >>> from dragonscale.exports.target import target_named
    >>> [stack_for(target_named("megatron"), name) for name in ("torchtitan", "megatron-core", "megatron-overlap")]
    ['megatron-lm', 'megatron-lm', 'megatron-overlap']
    """
    named = target.same.get(named, named)
    if named in stacks() and runs_stack(target, named):
        return named
    return next((name for name in target.runs if name in stacks()), target.runs[0])


def runs_stack(target: Target, name: str) -> bool:
    """Whether a target runs the plans of a stack: one of its own, or a variant of one."""
    while name:
        if name in target.runs:
            return True
        name = stacks()[name].base if name in stacks() else ""
    return False


def engine_for(target: Target, named: str, plan: ServingPlan) -> str:
    """The engine that judges: the plan's own where the target runs it, the target's otherwise.

    An engine of wide expert parallelism (`…-ep`) is for plans that go beyond a server, as `--engine auto` has it, or
    that were made for such an engine. `named` may carry changed settings after a comma.
    """
    name = named.partition(",")[0].strip()
    if name in target.runs:
        plain = server_of(name)
        if rules(name).wide and not plan.is_wide and plain in target.runs:
            return plain + named.strip().removeprefix(name)
        return named
    wide = next((engine for engine in target.runs if engine.endswith("-ep")), "")
    beyond_server = plan.chips > NODE or name.endswith("-ep")
    return wide if wide and plan.is_wide and beyond_server else target.runs[0]
