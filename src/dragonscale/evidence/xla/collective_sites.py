"""Where the collectives of a compiled module stand: which instructions are one, and which are copies or halves of
another.

A collective is written in many ways, and each must be counted once, where it starts:

- plain, `all-gather(...)`: it blocks;
- as a pair, `all-gather-start` and `all-gather-done`, with other work scheduled between;
- wrapped: `async-start(...), calls=%wrapped` (on a TPU's sparse cores `call-start(...), to_apply=`) and the plain form
  inside;
- fused on TPU: the fusion `async-collective-start` begins it, fusions `async_collective_fusion` compute while it goes
  on, and
  `async-collective-done` ends it. Each holds a *copy* of the same collective; only the start's counts;
- on TPU a reduce-scatter as a fusion that holds an all-reduce and takes a slice of it (`all-reduce-scatter`);
- `send` and `recv` as two halves of one.

Around it stands where it comes from, what can hide it, and what the compiler chose for it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import PlacedOp, callers, only_caller
from dragonscale.evidence.xla.device_groups import source_target_pairs
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module
from dragonscale.evidence.xla.matmul_sizes import may_multiply
from dragonscale.evidence.xla.op_costs import op_flops
from dragonscale.evidence.xla.opcodes import COLLECTIVES, KIND_OF

REFUSED = ("collective-broadcast",)
KINDS = {opcode: kind for opcode, kind in KIND_OF.items() if kind in COLLECTIVES and opcode not in REFUSED}
_NAMES = "|".join(sorted([*KINDS, *REFUSED], key=len, reverse=True))
_COLLECTIVE = re.compile(rf"(?P<kind>{_NAMES})(?P<part>-start|-done)?")
_MENTION = re.compile(rf"(?<= )(?:{_NAMES})(?:-start)?\((?=[%\w])")
"""Anything that looks like a collective, however its line is built: as many must have been read."""
_COPY = re.compile(r"async[-_]collective[-_](?:done|fusion)")
_END = re.compile(r"async[-_]collective[-_]done")
_BEGIN = re.compile(r"async[-_]collective[-_]start")
WINDOWED = "windowed_dot_general_body"
"""What the partitioner calls the loop that a matmul becomes when its collective is cut into permutes."""


@dataclass(frozen=True)
class Site:
    """One collective where it stands.

    `where` and `anchor` are the scheduled computation and instruction that start it: the collective itself, or the
    fusion or asynchronous start around it. `fusion` is the fusion that holds it, if one does.
    """

    computation: Computation
    instruction: Instruction
    opcode: str
    where: str
    anchor: Instruction
    fusion: Instruction | None
    is_copy: bool

    @property
    def is_async(self) -> bool:
        """Whether other work can be scheduled while it runs."""
        started = self.anchor.opcode.endswith("-start") or self.anchor.opcode in ("send", "recv")
        config = self.instruction.config.get("collective_backend_config") or {}
        begun = self.fusion is not None and bool(_BEGIN.match(self.fusion.name))
        return (started or begun) and not config.get("is_sync")


def collective_sites(module: Module, text: str) -> Iterator[Site]:
    """Every collective of a module, copies included, in order of its computations; all that looks like one must be
    among them."""
    mentions = 0
    for computation, instruction in module.placed:
        match = _COLLECTIVE.fullmatch(instruction.opcode)
        if match is None or match["part"] == "-done":
            continue
        mentions, kind = mentions + 1, match["kind"]
        if kind in REFUSED:
            raise InputError(f"The collective {instruction.name} is a {kind}, which this reader does not know.")
        yield _site(module, computation, instruction, kind)
    looks = len(_MENTION.findall(text))
    if mentions != looks:
        raise InputError(f"The module mentions {looks} collectives and {mentions} could be read.")


def _site(module: Module, computation: Computation, instruction: Instruction, opcode: str) -> Site:
    where, anchor, fusion, is_copy = computation.name, instruction, None, False
    while True:
        calls = [call for call in callers(module)[where] if call.role in ("calls", "to_apply", "called_computations")]
        outer = next((call for call in calls if call.instruction.opcode.endswith(("fusion", "-start"))), None)
        if outer is None:
            break
        if outer.instruction.opcode == "fusion":
            fusion = fusion or outer.instruction
            is_copy = is_copy or any(_COPY.match(name) for name in (outer.instruction.name, where))
        where, anchor = outer.where, outer.instruction
    return Site(computation, instruction, opcode, where, anchor, fusion, is_copy)


def done_of(module: Module, site: Site) -> Instruction | None:
    """The instruction that waits for an asynchronous collective, where it stands in the same computation.

    Between the start and the done of a fused collective stand the fusions that compute meanwhile, which hand it on.
    """
    computation = module.computations[site.where]
    begun = site.anchor if site.opcode != "send" else _other_half(computation, site.anchor)
    waiting, seen = [begun], {begun.name}
    while waiting:
        for user in computation.users[waiting.pop(0).name]:
            hands_on = user.opcode == "fusion" and _holds(module, user, site)
            if user.opcode.endswith("-done") or (hands_on and _END.match(user.name)):
                return user
            passes = user.opcode in ("get-tuple-element", "bitcast", "tuple") or user.opcode.endswith("-update")
            if user.name not in seen and (passes or hands_on):
                seen.add(user.name)
                waiting.append(user)
    return None


def _other_half(computation: Computation, send: Instruction) -> Instruction:
    """The `recv` that belongs to a `send`: both carry the same attributes."""
    same = send.attribute("frontend_attributes")
    found = (each for each in computation.instructions if each.opcode == "recv")
    return next((each for each in found if each.attribute("frontend_attributes") == same), send)


def _holds(module: Module, fusion: Instruction, site: Site) -> bool:
    """Whether a fusion holds a copy of a collective: the same operation on the same channel."""
    channel = site.instruction.attribute("channel_id")
    inside = (each.instruction for each in PlacedOp(module, site.computation, fusion).inside)
    return any(each.opcode == site.instruction.opcode and each.attribute("channel_id") == channel for each in inside)


def origin_of(module: Module, site: Site) -> tuple[Instruction, bool]:
    """The instruction that says where a collective comes from, and whether it only mends a scatter's padding.

    Collectives that the compiler made late carry no name: then it is what they are computed from that has one. On TPU a
    reduce-scatter may be padded to whole tiles; what this puts on the wrong device is sent on by a small permute.
    """
    if site.instruction.op_name:
        return site.instruction, False
    computation, source = module.computations[site.where], site.anchor
    padding = False
    while not source.op_name and source.operands and source.operands[0] in computation.named:
        source = computation.named[source.operands[0]]
        padding = padding or any("all-reduce-scatter" in name for _, name in source.callees)
    if source.opcode == "parameter":  # whose name is that of an argument
        source = site.instruction
    return source, padding and site.opcode == "collective-permute"


def window_of(module: Module, site: Site) -> float | None:
    """FLOPs scheduled between an asynchronous collective's start and its end; None where the end is elsewhere."""
    done = done_of(module, site)
    if done is None:
        return None
    computation = module.computations[site.where]
    between = computation.instructions[computation.places[site.anchor.name] + 1 : computation.places[done.name]]
    return sum(op_flops(PlacedOp(module, computation, each)).matmul for each in between)


def is_decomposed(module: Module, site: Site) -> bool:
    """Whether a permute is a step of a collective matmul that the partitioner made.

    Most steps stand in a loop that carries the partitioner's name; the first and the last of them, and all of a short
    ring, stand outside it. Those carry the name of the matmul that they are part of, and go round a ring.
    """
    if site.opcode != "collective-permute":
        return False
    where: str | None = site.where
    while where is not None and WINDOWED not in where:
        call = only_caller(module, where)
        where = call.where if call else None
    if where is not None:
        return True
    pairs = source_target_pairs(site.instruction.attribute("source_target_pairs"))
    return site.instruction.op_name in matmul_names(module) and is_ring(pairs)


@lru_cache(maxsize=1)
def matmul_names(module: Module) -> frozenset[str]:
    """Where in the user's program the module's matmuls come from."""
    return frozenset(each.op_name for _, each in module.placed if may_multiply(each) and each.op_name)


@lru_cache(maxsize=1024)
def is_ring(pairs: tuple[tuple[int, int], ...]) -> bool:
    """Whether each device sends on along rings of one length.

    >>> is_ring(((0, 1), (1, 2), (2, 0))), is_ring(((0, 1), (1, 0), (2, 3), (3, 2))), is_ring(((0, 0), (1, 2), (2, 1)))
    (True, True, False)
    >>> is_ring(((0, 1), (1, 2)))
    False
    """
    target = dict(pairs)
    if set(target) != set(target.values()):
        return False
    lengths: set[int] = set()
    left = set(target)
    while left:
        first = device = left.pop()
        length = 1
        while (device := target[device]) != first:
            left.discard(device)
            length += 1
        lengths.add(length)
    return len(lengths) == 1 and lengths != {1}


def algorithm(site: Site) -> str:
    """The compiler's choice for a collective, as a short text."""
    words: list[str] = []
    for instruction in (site.instruction, site.anchor):
        tpu = instruction.config.get("collective_algorithm_config") or {}
        gpu = instruction.config.get("collective_backend_config") or {}
        words += [str(tpu[name]) for name in ("emitter", "strategy") if tpu.get(name)]
        words += [str(gpu[name]) for name in ("backend", "kernel_strategy") if gpu.get(name)]
    words += [site.anchor.attribute("async_execution_thread").strip('"')]  # sparse cores, where it runs there
    words = [word.removeprefix("KERNEL_STRATEGY_") for word in words if not word.endswith("DEFAULT")]
    return " ".join(dict.fromkeys(word for word in words if word))
