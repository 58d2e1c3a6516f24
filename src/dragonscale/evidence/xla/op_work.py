"""What one instruction does: its kind, FLOPs, bytes by memory, and what it sends to other devices.

`work_of` reads an instruction in its module; `work_of_text` one line on its own, as a profile has it, where shapes must
be in the line and what is inside a fusion can only be guessed from names and sizes. Numbers are those of one execution
on one device, and whatever could not be known is said in `unknown`, never counted as nothing without a word.

>>> work = work_of_text(
...     "%dot.4 = bf16[64,512]{1,0} dot(bf16[64,256]{1,0} %x, bf16[256,512]{1,0} %w), "
...     "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
... )
>>> work.kind, work.matmul_flops == 2 * 64 * 256 * 512, work.hbm_bytes == 2 * (64 * 256 + 256 * 512 + 64 * 512)
('matmul', True, True)
>>> work_of_text(
...     "%g = bf16[8,16]{1,0} all-gather(bf16[8,4]{1,0} %p), replica_groups=[2,4]<=[8], dimensions={1}"
... ).wire_bytes
192.0
"""

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, operand_types, read_instruction
from dragonscale.evidence.xla.layouts import MEMORIES
from dragonscale.evidence.xla.matmul_sizes import MatmulSizes, matmul_sizes, suspected_matmul
from dragonscale.evidence.xla.op_bytes import op_bytes
from dragonscale.evidence.xla.op_flops import op_flops
from dragonscale.evidence.xla.op_kinds import COLLECTIVE_KINDS, kind_of
from dragonscale.evidence.xla.op_wire import Wire, op_wire
from dragonscale.evidence.xla.trip_counts import UNKNOWN, trip_count

_MAIN = MEMORIES[0]
OPERANDS, INSIDE, FLOPS = "the shapes of its operands", "what it runs inside", "the FLOPs"
"""What may not be known of an instruction."""


class OpWork(msgspec.Struct, frozen=True):
    """The work of one execution of an instruction on one device, a loop's in all its turns. Bytes are those of the
    elements; `padding_bytes` are apart."""

    name: str
    opcode: str
    kind: str
    """`matmul`, `attention`, `elementwise`, `reduce`, `sort`, `gather`, `scatter`, a collective, `host`; `copy` moves
    data and computes nothing, `control` runs other instructions, `nothing` is only a name for a value; or `unknown`."""
    detail: str = ""
    """A word more about the kind: what a copy is for, a library's name, or `from its name` where the kind is a guess.
    """
    matmul_flops: float = 0.0
    vector_flops: float = 0.0
    transcendentals: float = 0.0
    read_bytes: dict[str, float] = {}
    """By memory: `HBM`, `VMEM`, `host` …"""
    written_bytes: dict[str, float] = {}
    padding_bytes: dict[str, float] = {}
    wire_bytes: float = 0.0
    """Bytes that a collective makes each device send, with the best algorithm."""
    group_size: int | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    """A collective's groups, or a permute's pairs."""
    half: str = ""
    """`start` or `done` of an asynchronous op: the work is the start's, the waiting is the done's."""
    trips: int | None = None
    """How often a loop's body runs each time."""
    matmuls: tuple[MatmulSizes, ...] = ()
    dtype: str = ""
    """Element type of the first matmul's operands, else of the result."""
    unknown: tuple[str, ...] = ()
    causal: bool = False
    """Whether it is attention with a causal mask: of its FLOPs, which count all scores as XLA does, half are computed.
    """

    @property
    def flops(self) -> float:
        """Matmul and vector FLOPs together."""
        return self.matmul_flops + self.vector_flops

    @property
    def hbm_bytes(self) -> float:
        """Bytes read from and written to main memory, without padding."""
        return self.read_bytes.get(_MAIN, 0.0) + self.written_bytes.get(_MAIN, 0.0)

    @property
    def moved_bytes(self) -> float:
        """The same with padding, which is moved too."""
        return self.hbm_bytes + self.padding_bytes.get(_MAIN, 0.0)

    @property
    def is_collective(self) -> bool:
        """Whether it moves data between devices."""
        return self.kind in COLLECTIVE_KINDS


def work_of_text(text: str, on: str = "") -> OpWork:
    """The work of one instruction by its line alone; `on` is `tpu`, `gpu`, `cpu` or not known. A line that is none is
    an `InputError`."""
    return _checked(None, None, read_instruction(text), on)


def work_of(module: Module, computation: Computation | str, instruction: Instruction | str, on: str = "") -> OpWork:
    """The work of one instruction of a module, with what it calls."""
    where = module.computations[computation] if isinstance(computation, str) else computation
    found = where.named[instruction] if isinstance(instruction, str) else instruction
    return _checked(module, where, found, on)


def _checked(module: Module | None, where: Computation | None, instruction: Instruction, on: str) -> OpWork:
    try:
        return _work(module, where, instruction, on)
    except (ValueError, KeyError, IndexError, TypeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The HLO instruction {shorten(instruction.name)} cannot be read: {error!r:.120}.") from None


def _work(module: Module | None, where: Computation | None, instruction: Instruction, on: str) -> OpWork:
    kind, detail = kind_of(module, where, instruction)
    half = next((word for word in ("start", "done", "update") if instruction.opcode.endswith(f"-{word}")), "")
    over = half in ("done", "update")
    unknown = _unseen(module, where, instruction) if kind != "nothing" and not over else []
    flops = op_flops(module, where, instruction)
    matmul, sizes = flops.matmul, matmul_sizes(module, where, instruction)
    if kind in ("matmul", "attention") and not matmul and not over:
        suspected = suspected_matmul(instruction, operand_types(where, instruction)) if kind == "matmul" else None
        stated = _stated_flops(instruction)
        if stated:
            matmul = stated
        elif suspected:
            matmul, sizes = suspected.flops, (suspected,)
            unknown.append("the matmul's sizes, which are worked out from the shapes around it")
        else:
            unknown.append(FLOPS)
    moved = op_bytes(module, where, instruction, on)
    wire = op_wire(module, where, instruction, kind) if kind in COLLECTIVE_KINDS and not over else Wire()
    trips = trip_count(module, where.name, instruction) if module and where and instruction.opcode == "while" else None
    if trips == UNKNOWN:
        trips = None
        unknown.append("how often the loop runs")
    return OpWork(
        instruction.name,
        instruction.opcode,
        kind,
        detail,
        matmul,
        flops.vector,
        flops.transcendental,
        moved.read,
        moved.written,
        moved.padding,
        wire.bytes,
        wire.size,
        wire.groups,
        half,
        trips,
        sizes,
        _dtype(instruction, sizes),
        (*unknown, *wire.unknown),
        kind == "attention" and '"CAUSAL"' in instruction.text,
    )


def _dtype(instruction: Instruction, sizes: tuple[MatmulSizes, ...]) -> str:
    return sizes[0].dtype if sizes else instruction.shapes[0].dtype if instruction.shapes else ""


def _unseen(module: Module | None, where: Computation | None, instruction: Instruction) -> list[str]:
    """What a line on its own, or a module with pieces missing, does not show."""
    unseen: list[str] = []
    if not all(operand_types(where, instruction)) and instruction.opcode not in ("parameter", "constant", "iota"):
        unseen.append(OPERANDS)
    names = [name for role, name in instruction.callees if role != "to_apply"]
    if any(module is None or not module.computations[name].instructions for name in names):
        unseen.append(INSIDE)
    return unseen


def _stated_flops(instruction: Instruction) -> float | None:
    """FLOPs that the author of a kernel stated beside it (Pallas's `cost_estimate`)."""
    config = instruction.config.get("custom_call_config")
    estimate = (config if isinstance(config, dict) else instruction.config).get("cost_estimate")
    try:
        return float(estimate["flops"]) if isinstance(estimate, dict) else None
    except (KeyError, TypeError, ValueError):
        return None
