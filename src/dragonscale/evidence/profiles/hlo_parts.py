"""What the instructions of a program say of themselves and of each other: the part of the model and the phase that each
belongs to.

The part comes from the scopes that JAX writes into `op_name`, else from the file of its source line: a fusion takes
that of its dearest inner op, and an instruction that says nothing takes it from what it feeds, else from what it is
computed from (a slice of a layer's weights belongs to the matmul that reads it).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dragonscale.evidence.profiles import sections
from dragonscale.evidence.profiles.roles import FEEDS, OUTSIDE, SCOPE
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, frame_lines, source_line

_RUNS_OTHERS = ("while", "conditional", "call")
_DEEP, _WIDE = 8, 64
_HEAVY = {"dot": 8, "convolution": 8, "ragged-dot": 8, "custom-call": 7, "scatter": 4, "gather": 4, "reduce": 3}
_HEAVY |= {"dynamic-update-slice": 0, "dynamic-slice": 0}


@dataclass(frozen=True)
class PartSaid:
    """The part and phase that an instruction's own names say."""

    words: sections.SectionWords
    phase: str
    scope: str


class HloProgram:
    """A program with its instructions by name."""

    def __init__(self, name: str, module: Module) -> None:
        self.name, self.module = name, module
        self._said: dict[str, PartSaid] = {}
        self._frames = frame_lines(module.tables)

    @cached_property
    def places(self) -> dict[str, tuple[Computation, Instruction]]:
        """The computation and instruction of each name."""
        return {each.name: (where, each) for where in self.module.computations.values() for each in where.instructions}

    @cached_property
    def wrappers(self) -> dict[str, tuple[Computation, Instruction]]:
        """The fusion, call or start that runs a computation, with where it stands."""
        calls = ((role, name, place) for place in self.places.values() for role, name in place[1].callees)
        return {name: place for role, name, place in calls if role in ("calls", "to_apply", "called_computations")}

    @cached_property
    def trains(self) -> bool:
        """Whether the program has a backward pass."""
        return any("transpose(" in each.op_name for _, each in self.places.values())

    @cached_property
    def files_tell(self) -> bool:
        """Whether files tell the parts apart."""
        return sections.files_tell_parts(source_line(each.text, self._frames) for _, each in self.places.values())

    @cached_property
    def weights(self) -> frozenset[tuple[int, ...]]:
        """Sizes of what the program is given, as one device holds it, also of one layer of a stack."""
        parameters = (each for each in self.module.entry.instructions if each.opcode == "parameter")
        given = [shape.dims for each in parameters for shape in each.shapes]
        return frozenset(dims for whole in given for dims in (whole, whole[1:]) if len(dims) > 1)

    def said(self, instruction: Instruction) -> PartSaid:
        """What an instruction says of itself; a fusion what its dearest inner op says."""
        if instruction.name not in self._said:
            self._said[instruction.name] = self._read(instruction)
        return self._said[instruction.name]

    def _read(self, instruction: Instruction) -> PartSaid:
        best, most = PartSaid(sections.SectionWords(), "", ""), (-1, -1, 0.0)
        for each in self._inner(instruction):
            scope = each.op_name
            words = sections.section_of(scope)
            if not words.section and self.files_tell and (source := source_line(each.text, self._frames)):
                words = sections.SectionWords(sections.section_of_source(source))
            heavy, told = _HEAVY.get(each.opcode, 1), bool(words.section) + (words.section != "norm")
            weight = (heavy, told, sum(shape.bytes for shape in each.shapes))
            if scope and (heavy >= 7 or words.section or not best.scope) and weight > most:
                best, most = PartSaid(words, sections.phase_of_scope(scope), scope), weight
        return best

    def _inner(self, instruction: Instruction, depth: int = 0) -> Iterator[Instruction]:
        yield instruction
        if depth < _DEEP and instruction.opcode in ("fusion", "fusion-start", "async-start", "call-start"):
            for _, name in instruction.callees:
                if name in self.module.computations:
                    for each in self.module.computations[name].instructions:
                        if each.opcode not in ("parameter", "constant"):
                            yield from self._inner(each, depth + 1)

    def part(self, where: Computation, instruction: Instruction) -> tuple[PartSaid, str]:
        """The part and phase of an instruction, and how they are known."""
        own = self.said(instruction)
        back = own.phase == "backward"
        if (own.words.section and own.words.section != "norm") or instruction.opcode in _RUNS_OTHERS:
            return own, SCOPE if own.words.section else ""
        if self.trains and own.scope and not own.phase and not own.words.section:
            # in neither pass: it makes ready what the forward pass reads, or it is the update
            found = self._around(where, instruction, True)
            if found is not None and found.phase == "forward":
                return found, FEEDS
            return PartSaid(sections.SectionWords("optimizer"), "update", own.scope), OUTSIDE
        for forward in (False, True) if back else (True, False):
            found = self._around(where, instruction, forward)
            if found:
                words = sections.SectionWords(found.words.section, "", own.words.norm)
                how = SCOPE if own.words.section else FEEDS
                return PartSaid(words, own.phase or found.phase, own.scope or found.scope), how
        return own, SCOPE if own.words.section else ""

    def _around(self, where: Computation, instruction: Instruction, forward: bool) -> PartSaid | None:
        """What its neighbours say; of an instruction in a wrapper, also those of the wrapper."""
        for _ in range(_DEEP):
            found = self._near(where, instruction, forward)
            wrapper = None if found else self.wrappers.get(where.name)
            if wrapper is None:
                return found
            where, instruction = wrapper
        return None

    def _near(self, where: Computation, instruction: Instruction, forward: bool) -> PartSaid | None:
        """What the nearest instructions say that use it (`forward`), or that it uses."""
        waiting, seen = [(instruction, 0)], {instruction.name}
        while waiting and len(seen) < _WIDE:
            each, depth = waiting.pop(0)
            read = (where.named[name] for name in each.operands if name in where.named)
            for other in where.users.get(each.name, []) if forward else read:
                if other.name in seen or depth >= _DEEP:
                    continue
                seen.add(other.name)
                said = self.said(other) if other.opcode != "while" else PartSaid(sections.SectionWords(), "", "")
                if said.words.section and said.words.section != "norm":
                    return said
                if other.opcode == "tuple" and forward and (inside := self._carried(where, each, other)):
                    return inside
                if other.opcode not in ("tuple", "while", "parameter"):
                    waiting.append((other, depth + 1))
        return None

    def _carried(self, where: Computation, instruction: Instruction, carry: Instruction) -> PartSaid | None:
        """What uses a value that a loop carries, in the loop's body: a stack of zeros belongs to what is written into
        it."""
        places = [str(place) for place, name in enumerate(carry.operands) if name == instruction.name]
        loops = [each for each in where.users.get(carry.name, []) if each.opcode == "while"]
        bodies = [name for loop in loops for role, name in loop.callees if role == "body"]
        for body in (self.module.computations[name] for name in bodies if name in self.module.computations):
            taken = [each.name for each in body.instructions if _takes(body, each, places)]
            for user in (user for name in taken for user in body.users.get(name, [])):
                said = self.said(user)
                found = said if said.words.section else self._near(body, user, False)
                if found:
                    return found
        return None


def _takes(body: Computation, instruction: Instruction, places: list[str]) -> bool:
    """Whether an instruction takes one of these places out of what a loop carries."""
    if instruction.opcode != "get-tuple-element" or instruction.attribute("index") not in places:
        return False
    source = body.named.get(instruction.operands[0]) if instruction.operands else None
    return source is not None and source.opcode == "parameter"
