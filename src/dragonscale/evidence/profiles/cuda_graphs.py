"""Which instruction each kernel of a CUDA graph belongs to.

XLA records stretches of a program into CUDA graphs (command buffers) and launches those. The profile then says of every
kernel inside only which command buffer it ran in. But a graph was recorded from a computation's instructions in their
order, so its kernels are laid beside them: a fusion's kernel has the fusion's name (up to the number at its end: equal
fusions share a kernel), calls of cuBLAS and cuDNN have kernels of these libraries, and slices of a stacked weight are
copies. What a call needs beside its kernel (a workspace set to zero, a second kernel) goes to the neighbour that it was
recorded with.

>>> kernels = [
...     "memcpy128",
...     "wrapped_concatenate",
...     "Memset 0",
...     "nvjet_sm90_tst_128x128",
...     "loop_add_fusion_1",
...     "loop_add_fusion_1",
... ]
>>> body = [
...     ("fusion-start.6", "fusion-start"),
...     ("wrapped_concatenate.1", "fusion:wrapped_concatenate.1"),
...     ("custom-call.0", "call:__cublas$lt$matmul"),
... ]
>>> body += [("loop_add_fusion.1", "fusion:loop_add_fusion.1"), ("loop_add_fusion.3", "fusion:loop_add_fusion.3")]
>>> matched(kernels, [body])
['fusion-start.6', 'wrapped_concatenate.1', 'custom-call.0', 'custom-call.0', 'loop_add_fusion.1', 'loop_add_fusion.3']
"""

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np

from dragonscale.evidence.profiles.event_columns import Columns
from dragonscale.evidence.profiles.hlo_proto import Programs
from dragonscale.evidence.profiles.xspace import StatValue

_NUMBER = re.compile(r"(?:_\d+)+$")
_ODD = re.compile(r"\W")
_KERNELS = {
    "set": re.compile(r"(?i)^memset"),
    "copy": re.compile(r"(?i)^memcpy"),
    "cudnn": re.compile(r"(?i)cudnn"),
    "cublas": re.compile(r"(?i)nvjet|cublas|gemm(?!_fusion)|cutlass|xmma|splitk|gemv"),
    "nccl": re.compile(r"(?i)nccl"),
}
"""Words for kernels that are not named after their instruction; the first counts."""
_MOST_PAIRS = 4_000_000


@dataclass(frozen=True)
class OpRow:
    """An op of a device before it is described: its entry's names, and the statistics of entry and event together."""

    name: str
    shown: str
    stats: dict[str, StatValue]

    def of(self, instruction: str) -> "OpRow":
        """The same as an instruction's kernel; where in the graph it stands is no longer of interest."""
        return replace(self, stats=self.stats | {"hlo_op": instruction})


def graph_instructions(rows: list[OpRow], columns: list[Columns], programs: Programs) -> dict[int, str]:
    """The instructions of the kernels that ran in CUDA graphs, by the rows' places."""
    graphs: dict[tuple[str, StatValue], list[int]] = {}
    launched: set[StatValue | None] = set()
    for place, row in enumerate(rows):
        graph, module = row.stats.get("cuda_graph_id"), row.stats.get("hlo_module")
        if graph is not None and isinstance(module, str):
            number = row.stats.get("program_id")
            program = programs.key(module, number if isinstance(number, int) else None)
            graphs.setdefault((program, graph), []).append(place)
        else:
            launched.add(row.stats.get("hlo_op"))
    if not graphs:
        return {}
    first = np.full(len(rows), np.iinfo(np.int64).max)
    for each in columns:
        np.minimum.at(first, each.op, each.start)
    found: dict[int, str] = {}
    known: dict[tuple[str, ...], list[str]] = {}
    for (module, _), places in graphs.items():
        places.sort(key=lambda place: first[place])
        names = [rows[place].name for place in places]
        key = (module, *names)
        if key not in known:
            sequences = programs.sequences(module)
            # An instruction that is launched by itself is hardly in a graph too: those that are not come first.
            only = [[one for one in each if one[0] not in launched] for each in sequences]
            known[key] = matched(names, [*only, *sequences])
        found |= {place: name for place, name in zip(places, known[key], strict=True) if name}
    return found


def matched(kernels: list[str], sequences: list[list[tuple[str, str]]]) -> list[str]:
    """The instruction of each kernel of a graph, in their order; empty where none fits."""
    words = [_kernel_word(each) for each in kernels]
    told = [place for place, word in enumerate(words) if word != "set"]
    best: tuple[float, dict[int, str]] = (0.0, {})
    for sequence in sequences:
        candidates = [(name, word) for name, kind in sequence if (word := _instruction_word(kind))]
        if not candidates or not told or len(candidates) * len(told) > _MOST_PAIRS:
            continue
        kinds = [words[each] for each in told]
        found = _with_rest(kinds, candidates, _aligned(kinds, candidates))
        score = sum(1.0 + 0.5 * (_ODD.sub("_", name) == kernels[told[place]]) for place, name in found.items())
        if score > best[0]:
            best = score, {told[place]: name for place, name in found.items()}
    return _neighbours(words, best[1])


def _aligned(words: list[str], candidates: "list[tuple[str, str]]") -> dict[int, str]:
    """Kernels and instructions of the same kind in the same order."""
    blocks = SequenceMatcher(None, words, [word for _, word in candidates], autojunk=False).get_matching_blocks()
    return {block.a + place: candidates[block.b + place][0] for block in blocks for place in range(block.size)}


def _with_rest(words: list[str], candidates: "list[tuple[str, str]]", found: dict[int, str]) -> dict[int, str]:
    """With what is left over on both sides: branches of a graph run side by side, so a copy may be seen before or after
    a matmul. Where as many kernels as instructions of a kind are left, they belong to each other in their order."""
    taken = set(found.values())
    made = dict(found)
    for word in set(words):
        kernels = [place for place, one in enumerate(words) if one == word and place not in found]
        rest = [name for name, one in candidates if one == word and name not in taken]
        if len(kernels) == len(rest):
            made |= dict(zip(kernels, rest, strict=True))
    return made


def _neighbours(words: list[str], found: dict[int, str]) -> list[str]:
    """What was not matched goes with the next kernel where it prepares it (a memset), or with one of its own library
    beside it."""
    names = [found.get(place, "") for place in range(len(words))]
    for place in reversed(range(len(words))):
        word, following = words[place], words[place + 1 : place + 2]
        if not names[place] and following and (word == "set" or word == following[0] != "copy"):
            names[place] = names[place + 1]
    for place in range(1, len(words)):
        if not names[place] and words[place] == words[place - 1] and words[place] in ("cudnn", "cublas"):
            names[place] = names[place - 1]
    return names


def _kernel_word(name: str) -> str:
    return next((word for word, pattern in _KERNELS.items() if pattern.search(name)), _NUMBER.sub("", name))


def _instruction_word(kind: str) -> str:
    """The word for an instruction's kernel; empty for what runs none."""
    if kind.startswith("fusion:"):
        return _NUMBER.sub("", _ODD.sub("_", kind.removeprefix("fusion:")))
    if kind.startswith("call:"):
        called = (library for library in ("cudnn", "cublas") if library in kind.lower())
        return next(called, _NUMBER.sub("", kind.removeprefix("call:")))
    if kind in ("copy", "copy-start", "fusion-start", "dynamic-slice-start", "dynamic-update-slice-start"):
        return "copy"
    return "nccl" if kind.startswith(("all-", "reduce-scatter", "collective-")) and not kind.endswith("-done") else ""
