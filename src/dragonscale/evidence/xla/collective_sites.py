"""Where the collectives of a compiled module stand: which instructions are one, and which are copies or halves of another.

A collective is written in many ways, and each must be counted once, where it starts:

- plain, `all-gather(...)`: it blocks;
- as a pair, `all-gather-start` and `all-gather-done`, with other work scheduled between;
- wrapped: `async-start(...), calls=%wrapped` (on a TPU's sparse cores `call-start(...), to_apply=`) and the plain form inside;
- fused on TPU: the fusion `async-collective-start` begins it, fusions `async_collective_fusion` compute while it goes on, and
  `async-collective-done` ends it. Each holds a *copy* of the same collective; only the start's counts;
- on TPU a reduce-scatter as a fusion that holds an all-reduce and takes a slice of it (`all-reduce-scatter`);
- `send` and `recv` as two halves of one, see `transfers`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import callers
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module

KINDS = {
    "all-gather": "all_gather", "all-reduce": "all_reduce", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "ragged-all-to-all": "all_to_all", "collective-permute": "permute",
    "send": "permute", "recv": "permute",
}  # fmt: skip
REFUSED = ("collective-broadcast",)
_NAMES = "|".join(sorted([*KINDS, *REFUSED], key=len, reverse=True))
_COLLECTIVE = re.compile(rf"(?P<kind>{_NAMES})(?P<part>-start|-done)?")
_MENTION = re.compile(rf"(?<= )(?:{_NAMES})(?:-start)?\((?=[%\w])")
"""Anything that looks like a collective, however its line is built: as many must have been read."""
_COPY = re.compile(r"async[-_]collective[-_](?:done|fusion)")
_END = re.compile(r"async[-_]collective[-_]done")
_BEGIN = re.compile(r"async[-_]collective[-_]start")


@dataclass(frozen=True)
class Site:
    """One collective where it stands.

    `where` and `anchor` are the scheduled computation and instruction that start it: the collective itself, or the fusion or
    asynchronous start around it. `fusion` is the fusion that holds it, if one does.
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
    """Every collective of a module, copies included, in order of its computations; all that looks like one must be among them."""
    mentions = 0
    for computation in module.computations.values():
        for instruction in computation.instructions:
            match = _COLLECTIVE.fullmatch(instruction.opcode)
            if match is None or match["part"] == "-done":
                continue
            mentions += 1
            if match["kind"] in REFUSED:
                raise InputError(
                    f"The collective {instruction.name} is a {match['kind']}, which this reader does not know."
                )
            yield _site(module, computation, instruction, match["kind"])
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
    return any(
        each.opcode == site.instruction.opcode and each.attribute("channel_id") == channel
        for _, name in fusion.callees
        for each in module.computations[name].instructions
    )
