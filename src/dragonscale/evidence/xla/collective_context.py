"""What stands around a collective: where it comes from, what can hide it, and what the compiler chose for it."""

from functools import lru_cache

from dragonscale.evidence.xla.call_graph import only_caller
from dragonscale.evidence.xla.collective_sites import Site, done_of
from dragonscale.evidence.xla.hlo_text import Instruction, Module
from dragonscale.evidence.xla.matmuls import instruction_flops, may_multiply
from dragonscale.evidence.xla.replica_groups import source_target_pairs

_WINDOWED = "windowed_dot_general_body"
"""What the partitioner calls the loop that a matmul becomes when its collective is cut into permutes."""


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
    return sum(instruction_flops(module, computation, each) for each in between)


def is_decomposed(module: Module, site: Site) -> bool:
    """Whether a permute is a step of a collective matmul that the partitioner made.

    Most steps stand in a loop that carries the partitioner's name; the first and the last of them, and all of a short ring,
    stand outside it. Those carry the name of the matmul that they are part of, and go round a ring.
    """
    if site.opcode != "collective-permute":
        return False
    where: str | None = site.where
    while where is not None and _WINDOWED not in where:
        call = only_caller(module, where)
        where = call.where if call else None
    if where is not None:
        return True
    pairs = source_target_pairs(site.instruction.attribute("source_target_pairs"))
    return site.instruction.op_name in matmul_names(module) and is_ring(pairs)


@lru_cache(maxsize=1)
def matmul_names(module: Module) -> frozenset[str]:
    """Where in the user's program the module's matmuls come from."""
    every = (each for computation in module.computations.values() for each in computation.instructions)
    return frozenset(each.op_name for each in every if may_multiply(each) and each.op_name)


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
