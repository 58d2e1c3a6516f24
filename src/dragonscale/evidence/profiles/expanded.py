"""Experts that are multiplied with every token, whether it was sent to them or not.

A grouped matmul (`ragged_dot`) multiplies each row with the weight of its own expert. Where a backend has no kernel for
that, XLA makes one matmul of it, over the weights of all experts side by side with the rows of the others masked: as
many times the FLOPs as there are experts, at a rate that looks good.
"""

from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.roles import OpRole

_MOST = 1024


def expanded_experts(recording: Recording, roles: list[OpRole]) -> dict[int, int]:
    """Ops that multiply every row with the weights of all experts, by number, and how many experts those are."""
    some = [
        number
        for number, (op, role) in enumerate(zip(recording.ops, roles, strict=True))
        if role.kind == "grouped matmul" and role.flops and "ragged_dot" in f"{op.scope} {op.text}"
    ]
    if not some:
        return {}
    reader = HloReader(recording)
    found = {number: _times(recording.ops[number], reader) for number in some}
    return {number: times for number, times in found.items() if times > 1}


def _times(op: OpText, reader: HloReader) -> int:
    """How many experts a matmul runs over: they stand side by side, or in what is summed; 1 where neither is seen."""
    place, work = reader.found(op), reader.work(op)
    if place is None or work is None or work.opcode == "ragged-dot":
        return 1
    experts = [dims for dims in place[0].weights if len(dims) == 3 and 1 < dims[0] <= _MOST]
    for several, first, second in experts:
        for each in work.matmuls:
            beside = each.batch == several and {first, second} & {each.m, each.n, each.k}
            if beside or each.k in (several * first, several * second):
                return several
    return 1
