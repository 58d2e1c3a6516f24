"""What of a token travels to its experts and back.

Written plainly, a token's whole width goes to each of its experts in the format of activations, and each expert's
result comes back. Libraries for large expert parallelism do less: tokens leave in fp8 (`dispatch_bytes` of 1), and in
prefill (`expert_dedup`) a token goes only once to every node, or to every chip inside one, where several of its experts
are. Of n places, k experts picked at random are in n·(1 − (1 − 1/n)^k).
"""

from dragonscale.physics.collectives.group import Group, Switches
from dragonscale.physics.numbers import Number, maximum, where
from dragonscale.physics.sharding.step import Step
from dragonscale.serving.engine import Engine


def places(group: Group) -> Number:
    """Nodes over which a group spreads, or its chips if it stays inside one."""
    if not isinstance(group, Switches) or not group.levels[0].degree:
        return group.size
    nodes = group.size * group.stride / group.levels[0].degree
    return where(nodes > 1, nodes, group.size)


def sent_share(step: Step, group: Group, picks: Number, engine: Engine, prompt: bool, plain: float = 2.0) -> Number:
    """The part of the plain volume that an exchange with the experts sends, `plain` bytes for each element."""
    if step.kind != "all_to_all":
        return 1.0
    leaves = any(dim.name == "x" and dim.axes for dim in step.after.dims)
    share = engine.experts.dispatch_bytes / plain if leaves else 1.0
    if not (engine.experts.dedup and prompt):
        return share
    many = maximum(places(group), 1)
    return share * many * (1 - (1 - 1 / many) ** picks) / picks
