"""What a plan means that gives data-parallel ranks and no `fsdp`: `tp8 pp4 dp16`, `dp16 z1`.

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

from dragonscale.training.plan.legality import rules
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.legal import takes


def read_ranks(plan: Plan, named: frozenset[str], stack: str, chips: str) -> tuple[Plan, str]:
    """The plan with the axis that its data-parallel ranks are meant to be, and a note on what was not written. `named`
    are the settings that the user wrote; `chips` is the family of the chips."""
    row, ranks = rules(stack, chips, plan.pipe > 1), plan.data
    unsharded = plan.data * plan.fsdp == 1
    if not named & {"data", "fsdp", "zero"} and unsharded and plan.expert > 1 and row.data_zero:
        sharded = replace(plan, zero=row.data_zero)
        return sharded, f"ep{plan.expert} names no ZeRO and is read as in {stack}'s recipes, zero={sharded.zero}."
    if "data" not in named or "fsdp" in named or plan.data == 1:
        return plan, ""
    stage = plan.zero if "zero" in named else row.data_zero
    if stage:
        sharded = replace(plan, data=1, fsdp=ranks, zero=stage)
        if "zero" in named:
            whole = f"data={ranks},fsdp=1: whole replicas"
            return sharded, f"data={ranks} with zero={stage} is read as fsdp={ranks}: ZeRO shards over it ({whole})."
        recipes = f"as the distributed optimizer of {stack}'s recipes, fsdp={ranks} with zero={stage}"
        return sharded, f"data={ranks} names no ZeRO and is read {recipes} (zero=0: whole replicas)."
    replicas = replace(plan, zero=0)
    if "zero" in named or not takes(row, replicas, "zero"):
        return plan, ""
    return replicas, (
        f"data={ranks} is read as whole replicas: ZeRO is off by default, so nothing is sharded; write fsdp={ranks} to "
        "shard weights, gradients and the optimizer's state."
    )


def read_expert_ranks(plan: Plan, named: frozenset[str], chips: int) -> tuple[Plan, str]:
    """A plan whose expert ranks lie within its data-parallel ones, as Megatron and DeepSpeed count them, with a note;
    as it is where its axes multiply to the chips, or where that reading fits no better.

    >>> from dragonscale.training.plan.plan_file import given_settings, parse_plan
    >>> def read(text, chips):
    ...     return str(read_expert_ranks(parse_plan(text), given_settings(text), chips)[0])
    >>> read("ep8 tp2 dp8", 16), read("tp2 pp8 ep32", 256), read("ep8 tp2", 16)
    ('tensor=2,expert=8,etp=true', 'tensor=2,expert=16,pipe=8', 'tensor=2,expert=8')
    """
    if "expert" not in named or plan.expert == 1 or chips % plan.chips == 0:
        return plan, ""
    model_ranks = plan.pipe * plan.context * plan.tensor
    if chips % model_ranks:
        return plan, ""
    ranks = chips // model_ranks
    axis = "fsdp" if plan.fsdp > 1 else "data"
    if plan.data * plan.fsdp == ranks and plan[axis] % plan.expert == 0:
        # each expert is sliced over tensor, which is the default of --expert-tensor-parallel-size
        inside = replace(plan, etp=plan.tensor > 1 or plan.etp, **{axis: plan[axis] // plan.expert})
        sliced = f", experts sliced over tp{plan.tensor}" if inside.etp else ""
        return inside, (
            f"ep{plan.expert} is read as Megatron counts it, within the {ranks} data-parallel ranks{sliced}; here "
            "expert is an axis beside them."
        )
    experts = plan.expert // plan.tensor
    if not named & {"data", "fsdp"} and plan.tensor > 1 and plan.expert % plan.tensor == 0 and ranks % experts == 0:
        # whole experts over tensor ranks too: --expert-tensor-parallel-size 1
        return replace(plan, expert=experts), (
            f"ep{plan.expert} is read as Megatron counts it, over tp{plan.tensor} and {experts} of the {ranks} "
            f"data-parallel ranks: expert={experts} here."
        )
    return plan, ""


def own_ranks(plan: Plan, named: frozenset[str]) -> Plan:
    """The same plan as our own program reads it, alike on all chips."""
    return read_ranks(plan, named, "dragonscale", "other")[0]
