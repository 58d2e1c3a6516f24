"""What kind of work an instruction is: matmul, attention, elementwise, reduce, copy, gather, a collective, a host
transfer, control.

A fusion is what its body does that is dearest. Where the body is not at hand (one line of a profile), its names are
what is left: compilers name a fusion, and the computation it calls, after what they fused, and keep the name of the
user's operation.

>>> from dragonscale.evidence.xla.hlo_text import read_instruction
>>> kind_of(
...     None,
...     None,
...     read_instruction("%fusion.3 = bf16[8] fusion(bf16[64] %x), kind=kCustom, calls=%all-reduce-scatter.3"),
... )
('reduce_scatter', 'from its name')
>>> kind_of(None, None, read_instruction("%copy.7 = f32[8,4]{0,1} copy(f32[8,4]{1,0} %x)"))
('copy', 'layout change')
"""

import math
import re

from dragonscale.errors import InputError
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, operand_arrays, operand_types
from dragonscale.evidence.xla.layouts import read_arrays
from dragonscale.evidence.xla.opcodes import COPIES, ELEMENTWISE, HARMLESS, KIND_OF, NAMED, NAMES, RANK
from dragonscale.evidence.xla.transfers import read_transfer

COLLECTIVE_KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "broadcast")
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


def kind_of(
    module: Module | None, computation: Computation | None, instruction: Instruction, depth: int = 0
) -> tuple[str, str]:
    """The kind, and a word more: what a copy does, or that the kind is read from a name."""
    opcode = instruction.opcode
    half = _HALF.fullmatch(opcode)
    if half:
        if half["opcode"] in ("async", "call", "fusion"):
            return _wrapped(module, computation, instruction, depth)
        opcode = half["opcode"]
    if opcode in NAMES:
        return "nothing", ""
    if opcode == "copy":
        return _copied(computation, instruction)
    if opcode in ("send", "recv"):
        return _transferred(_started(computation, instruction))
    if opcode == "fusion":
        return _fused(module, instruction, depth)
    if opcode == "custom-call":
        return custom_kind(instruction)
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


def _copied(computation: Computation | None, instruction: Instruction) -> tuple[str, str]:
    """What a copy is for: another memory, another layout, or only another buffer."""
    given = [each for text in operand_types(computation, instruction) for each in read_arrays(text)]
    before = given[1:2] if instruction.opcode == "copy-done" else given[:1]  # a start hands on where to and where from
    after = read_arrays(instruction.result)[:1]
    if not before or not after:
        return "copy", ""
    if 5 in (before[0].space, after[0].space) and before[0].space != after[0].space:
        return "host", "to the host" if after[0].space == 5 else "from the host"
    if before[0].space != after[0].space:
        return "copy", "between memories"
    same = (before[0].minor_to_major, before[0].tiles) == (after[0].minor_to_major, after[0].tiles)
    return "copy", "" if same else "layout change"


def _wrapped(
    module: Module | None, computation: Computation | None, instruction: Instruction, depth: int
) -> tuple[str, str]:
    """The kind of what an asynchronous start runs; its end is of the same kind."""
    inside = _bodies(module, _started(computation, instruction))
    return _dearest(module, inside, depth) if inside else _from_names(instruction)


def _started(computation: Computation | None, instruction: Instruction) -> Instruction:
    """What began an asynchronous op, seen from its end."""
    for _ in range(_SHALLOW):
        before = computation.named.get(instruction.operands[0]) if computation and instruction.operands else None
        if before is None or not instruction.opcode.endswith(("-done", "-update")):
            break
        instruction = before
    return instruction


def _bodies(module: Module | None, instruction: Instruction) -> list[Computation]:
    if module is None:
        return []
    found = [module.computations[name] for _, name in instruction.callees if name in module.computations]
    return [each for each in found if each.instructions]


def _fused(module: Module | None, instruction: Instruction, depth: int) -> tuple[str, str]:
    inside = _bodies(module, instruction)
    return _dearest(module, inside, depth) if inside else _from_names(instruction)


def _dearest(module: Module | None, inside: list[Computation], depth: int) -> tuple[str, str]:
    """The kind of what is dearest in a body; an all-reduce of which one slice is kept is a reduce-scatter."""
    if depth > _SHALLOW:
        return "unknown", ""
    every = [(computation, each) for computation in inside for each in computation.instructions]
    sizes = [_touched(*pair) for pair in every]
    opcodes = [each.opcode for _, each in every]
    largest = max((size for size, opcode in zip(sizes, opcodes, strict=True) if opcode not in NAMES), default=0)
    found: dict[str, str] = {}
    for (computation, each), size in zip(every, sizes, strict=True):
        kind, detail = kind_of(module, computation, each, depth + 1)
        if each.opcode == "convert":  # a copy may change the type on its way
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


def _touched(computation: Computation, instruction: Instruction) -> int:
    """Elements that an instruction handles: those it makes, or that it reduces, or of an update only the update."""
    made = sum(math.prod(shape.dims) for shape in instruction.shapes)
    if instruction.opcode == "reduce":
        return max([made, *(math.prod(shape.dims) for shape in operand_arrays(computation, instruction))])
    if instruction.opcode == "dynamic-update-slice":
        return min([made, *(math.prod(shape.dims) for shape in operand_arrays(computation, instruction)[1:2])])
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
    target = instruction.attribute("custom_call_target").strip('"')
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
