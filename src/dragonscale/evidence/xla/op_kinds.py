"""What kind of work an instruction is: matmul, attention, elementwise, reduce, copy, gather, a collective, a host
transfer, control.

A fusion is what its body does that is dearest. Where the body is not at hand (one line of a profile), its names are
what is left: compilers name a fusion, and the computation it calls, after what they fused, and keep the name of the
user's operation.

>>> kind_of(PlacedOp.alone("%fusion.3 = bf16[8] fusion(bf16[64] %x), kind=kCustom, calls=%all-reduce-scatter.3"))
('reduce_scatter', 'from its name')
>>> kind_of(PlacedOp.alone("%copy.7 = f32[8,4]{0,1} copy(f32[8,4]{1,0} %x)"))
('copy', 'layout change')
"""

import re

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import PlacedOp
from dragonscale.evidence.xla.device_groups import read_transfer
from dragonscale.evidence.xla.hlo_text import Instruction
from dragonscale.evidence.xla.layouts import HOST, read_arrays
from dragonscale.evidence.xla.opcodes import COPIES, ELEMENTWISE, HARMLESS, KIND_OF, NAMED, NAMES, RANK

BY_NAME = "from its name"
_HALF = re.compile(r"(?P<opcode>[a-z\-]+?)-(?P<half>start|done|update)")
_ATTENTION = re.compile(r"flash|splash|attention|fmha|\bmha\b|mqa|softmax", re.IGNORECASE)
_FUSION_KINDS = {"kOutput": "matmul", "kInput": "reduce", "kLoop": "elementwise"}
_TRITON = {"__triton_gemm": "matmul", "__triton_nested_gemm_fusion": "matmul", "__cudnn$fusion": "matmul"}
_SHALLOW = 8
_SIZED = ("elementwise", "reduce", "copy", "gather", "scatter")
_SMALL = 16
"""An op of these kinds that handles this many times fewer elements than the largest of its fusion does not name the
fusion."""


def kind_of(op: PlacedOp, depth: int = 0) -> tuple[str, str]:
    """The kind, and a word more: what a copy does, or that the kind is read from a name."""
    opcode = op.instruction.opcode
    half = _HALF.fullmatch(opcode)
    opcode = half["opcode"] if half else opcode
    if opcode == "fusion" or (half and opcode in ("async", "call")):
        # an asynchronous start is what it runs, and its end is of the same kind
        inside = PlacedOp(op.module, op.where, _started(op)).inside
        return _dearest(inside, depth) if inside else _from_names(op.instruction)
    if opcode in NAMES:
        return "nothing", ""
    if opcode == "copy":
        return _copied(op)
    if opcode in ("send", "recv"):
        return _transferred(_started(op))
    if opcode == "custom-call":
        return custom_kind(op.instruction)
    if opcode in COPIES:
        return "copy", COPIES[opcode]
    return ("elementwise" if opcode in ELEMENTWISE else KIND_OF.get(opcode, "unknown")), ""


def _transferred(instruction: Instruction) -> tuple[str, str]:
    """A send or recv: to the host, to another device, or half of a collective between slices."""
    try:
        transfer = read_transfer(instruction)
    except InputError:  # a `done` does not repeat between whom it was
        return ("host", "") if "is_host_transfer=true" in instruction.text else ("permute", "")
    return (transfer.kind, "between slices" if transfer.between_slices else "") if transfer else ("host", "")


def _copied(op: PlacedOp) -> tuple[str, str]:
    """What a copy is for: another memory, another layout, or only another buffer."""
    given = [each for text in op.types for each in read_arrays(text)]
    # a start hands on where to and where from
    before = given[1:2] if op.instruction.opcode == "copy-done" else given[:1]
    after = read_arrays(op.instruction.result)[:1]
    if not before or not after:
        return "copy", ""
    if before[0].space != after[0].space:
        if HOST in (before[0].space, after[0].space):
            return "host", "to the host" if after[0].space == HOST else "from the host"
        return "copy", "between memories"
    same = (before[0].minor_to_major, before[0].tiles) == (after[0].minor_to_major, after[0].tiles)
    return "copy", "" if same else "layout change"


def _started(op: PlacedOp) -> Instruction:
    """What began an asynchronous op, seen from its end."""
    instruction = op.instruction
    for _ in range(_SHALLOW):
        before = op.where.named.get(instruction.operands[0]) if instruction.operands else None
        if before is None or not instruction.opcode.endswith(("-done", "-update")):
            break
        instruction = before
    return instruction


def _dearest(inside: list[PlacedOp], depth: int) -> tuple[str, str]:
    """The kind of what is dearest in a body; an all-reduce of which one slice is kept is a reduce-scatter."""
    if depth > _SHALLOW:
        return "unknown", ""
    opcodes, sizes = [each.instruction.opcode for each in inside], [_touched(each) for each in inside]
    largest = max((size for size, opcode in zip(sizes, opcodes, strict=True) if opcode not in NAMES), default=0)
    found: dict[str, str] = {}
    for each, size in zip(inside, sizes, strict=True):
        kind, detail = kind_of(each, depth + 1)
        if each.instruction.opcode == "convert":  # a copy may change the type on its way
            kind = "nothing"
        if kind not in _SIZED or size * _SMALL >= largest:  # the arithmetic of an index is not what a kernel is for
            found.setdefault(kind, detail)
    if opcodes.count("dot") > 1 and "exponential" in opcodes:
        return "attention", ""
    if "all_reduce" in found and "dynamic-slice" in opcodes:
        return "reduce_scatter", "all-reduce and dynamic-slice by partition-id"
    if found.keys() <= {"copy", "nothing"} and "copy" in found:
        return "copy", found["copy"]
    return next(((kind, found[kind]) for kind in RANK if kind in found), ("nothing", ""))


def _touched(op: PlacedOp) -> int:
    """Elements that an instruction handles: those it makes, or that it reduces, or of an update only the update."""
    made = op.instruction.elements
    if op.instruction.opcode == "reduce":
        return max([made, *(shape.elements for shape in op.arrays)])
    if op.instruction.opcode == "dynamic-update-slice":
        return min([made, *(shape.elements for shape in op.arrays[1:2])])
    return made


def _from_names(instruction: Instruction) -> tuple[str, str]:
    """The kind that an instruction's own name, what it calls and the user's operation suggest."""
    configured = instruction.config.get("fusion_backend_config")
    word = configured.get("kind", "") if isinstance(configured, dict) else ""
    if word in _TRITON:
        return _TRITON[word], ""
    called = " ".join(name for _, name in instruction.callees)
    operation = instruction.op_name.rsplit("/", 1)[-1]
    for text in (f"{called} {instruction.name}", operation):
        plain = re.sub(r"fused_computation|fusion|wrapped|clone", " ", text)
        for kind, pattern in NAMED.items():
            if re.search(pattern, plain):
                return kind, BY_NAME
    guess = _FUSION_KINDS.get(instruction.attribute("kind"))
    return (guess, "from the kind of fusion") if guess else ("unknown", "")


def custom_kind(instruction: Instruction) -> tuple[str, str]:
    """The kind of a custom call, by its target and by its name."""
    target = instruction.target
    if target.startswith("__cudnn$fmha"):
        return "attention", target
    if target.startswith(("__cublas$", "__cudnn$conv", "__onednn$matmul")):
        return "matmul", target
    if target in HARMLESS or target.startswith("Sharding"):
        return "nothing", target
    if "TopK" in target or "Sort" in target or "sort" in target:
        return "sort", target
    if target in ("MoveToHost", "MoveToDevice") or "callback" in target:
        return "host", target
    name = f"{instruction.name} {instruction.op_name} {instruction.attribute('kernel_name')}"
    if _ATTENTION.search(name):
        return "attention", BY_NAME
    guessed = _from_names(instruction)
    return guessed if guessed[0] == "matmul" else ("unknown", target)
