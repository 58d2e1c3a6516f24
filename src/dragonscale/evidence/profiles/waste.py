"""Time that computes nothing new: copies that only change a layout or a dtype, the padding of tiles, and experts that
see every token.

A TPU keeps arrays in whole tiles, so `bf16[8,100]` moves as many bytes as `bf16[8,128]`. An op that is bound by memory
loses the padded share of its bytes; one that is bound by its matmul is not counted, as its tiles are those of the
matrix unit.

A grouped matmul (`ragged_dot`) multiplies each row with the weight of its own expert. Where a backend has no kernel for
that, XLA makes one matmul of it, over the weights of all experts side by side with the rows of the others masked: as
many times the FLOPs as there are experts, at a rate that looks good.
"""

import re

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.per_op import StepOps
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.records import WasteLine
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.xla.op_work import work_of_text

PADDING = "padding of tiles"
EXPERTS = "experts multiplied with tokens that were not sent to them"
CASTS = "casts between dtypes"
STACKS = "slices of stacked arrays, copied"
FILLS = "arrays filled with a constant"
LAYOUTS = "layouts changed, arrays joined or padded"
COPIED = (CASTS, STACKS, FILLS, LAYOUTS)
_WORDS = {
    CASTS: re.compile(r"(?i)convert|to_copy|(?<!broad)(?<!bit)(?<!no)cast"),
    STACKS: re.compile(r"(?i)dynamic[-_](update[-_])?slice|memcpy|scan"),
    FILLS: re.compile(r"(?i)broadcast|memset|fill|zeros"),
}
"""What a copy is for, by its name and text; the first that fits, else its layout is changed."""
_SMALL = 1e-4
"""Ops with less than this share of the step are not looked at for padding."""
_MOST_EXPERTS = 1024
_LONGEST = 20_000
"""Characters of an instruction that are read."""


def wasted(step: StepOps) -> tuple[WasteLine, ...]:
    """Layout copies and padding of a step, in seconds."""
    exposed, lost = step.totals.exposed, dict[str, dict[int, float]]()
    for number, role in step.ran_roles:
        op = step.recording.ops[number]
        if role.kind == "copy" and exposed[number] > 0:
            lost.setdefault(copied_for(op), {})[number] = float(exposed[number])
        if exposed[number] < _SMALL * step.step_s or not op.text or step.roof.bound(role)[1] == "compute":
            continue
        if (share := padding_share(op.text)) > 0.01:
            lost.setdefault(PADDING, {})[number] = share * float(exposed[number])
    for number, several in expanded_experts(step.recording, step.roles).items():
        lost.setdefault(EXPERTS, {})[number] = float(exposed[number]) * (1 - 1 / several)
    lines = [_line(step, what, ops) for what, ops in lost.items() if what != EXPERTS or sum(ops.values()) > 0]
    return tuple(sorted(lines, key=lambda line: -line.seconds))


def _line(step: StepOps, what: str, ops: dict[int, float]) -> WasteLine:
    """Seconds that are lost in ops, and the names of the largest."""
    seconds = float(np.sum(list(ops.values())))
    order = list(ops) if what in COPIED else sorted(ops, key=lambda number: -ops[number])
    names = tuple(dict.fromkeys(step.recording.ops[number].name for number in order))[:5]
    return WasteLine(what, seconds, step.share(seconds), names)


def copied_for(op: OpText) -> str:
    """What an op that only copies does it for.

    >>> copied_for(OpText("triton_poi_fused__to_copy_4")), copied_for(OpText("loop_broadcast_fusion_3")) == FILLS
    ('casts between dtypes', True)
    >>> copied_for(OpText("dynamic-slice_bitcast_fusion.1")) == STACKS
    True
    >>> copied_for(OpText("bfloat16_copy_kernel", caller="aten::to/aten::copy_", shapes=("bf16[8]", "f32[8]"))) == CASTS
    True
    """
    dtypes = {shape.split("[", 1)[0] for shape in op.shapes[:2]}
    if len(op.shapes) > 1 and op.caller.endswith("aten::copy_"):
        return CASTS if len(dtypes) > 1 else LAYOUTS
    text = op.text.split("metadata=", 1)[0][-400:]
    for words in (op.name, f"{text} {op.scope.rsplit('/', 1)[-1]}"):
        for what, pattern in _WORDS.items():
            if pattern.search(words):
                return what
    return LAYOUTS


def padding_share(text: str) -> float:
    """The part of an instruction's bytes of HBM that is padding.

    >>> round(padding_share("%c = bf16[64,100]{1,0:T(8,128)(2,1)} copy(bf16[64,100]{1,0:T(8,128)(2,1)} %p)"), 2)
    0.22
    """
    try:
        work = work_of_text(text[:_LONGEST], "tpu")
    except (InputError, ValueError, KeyError, IndexError):
        return 0.0
    return 1 - work.hbm_bytes / work.moved_bytes if work.moved_bytes else 0.0


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
    experts = [dims for dims in place[0].weights if len(dims) == 3 and 1 < dims[0] <= _MOST_EXPERTS]
    for several, first, second in experts:
        for each in work.matmuls:
            beside = each.batch == several and {first, second} & {each.m, each.n, each.k}
            if beside or each.k in (several * first, several * second):
                return several
    return 1
