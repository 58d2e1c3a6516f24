"""Compiled programs in a profile (`HloProto`), as the records that the reader of HLO text makes.

A profile holds each program that ran, as XLA keeps it in memory. The readers in `evidence/xla/` work on HLO text, so an
instruction is written as its text (the way XLA itself prints it) and nothing downstream has to know two forms. A
program can have a hundred thousand instructions, so it is only indexed at first, and single instructions are written
when an event asks for them; the whole becomes a `Module` when somebody looks it up.

`Programs` finds them by the names that a profile's events give them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.hlo_attributes import attributes, constant_text, shape_text
from dragonscale.evidence.profiles.protobuf import Broken, Buffer, Message, Span, first, first_text, signed
from dragonscale.evidence.profiles.xspace import Plane
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, frame_lines, source_line

_LONGEST_CHAIN = 8
_MOST_OPERANDS = 1000


@dataclass(frozen=True)
class ProgramLine:
    """An instruction as text, with what its metadata says."""

    text: str
    scope: str
    source: str


@dataclass(frozen=True)
class _Part:
    """A computation, not yet written: where its instructions lie, by id."""

    number: int
    name: str
    root: int
    instructions: dict[int, Span]


class ProgramBytes:
    """One serialized module."""

    def __init__(self, data: Buffer, span: Span) -> None:
        """The span is that of an `HloProto`, of which the module is the first field."""
        module = first(data, span, 1)
        if not isinstance(module, tuple):
            raise Broken("a program without a module")
        self.data, self.span = data, module

    @cached_property
    def _fields(self) -> Message:
        return Message(self.data, self.span)

    @cached_property
    def name(self) -> str:
        """The module's name (`jit_train_step`)."""
        return first_text(self.data, self.span, 1)

    @cached_property
    def _parts(self) -> dict[int, _Part]:
        return {part.number: part for part in map(self._part, self._fields.spans(3))}

    def _part(self, span: Span) -> _Part:
        message = Message(self.data, span)
        found = {self._number(each): each for each in message.spans(2)}
        return _Part(message.whole(5), message.word(1), message.whole(6), found)

    def _number(self, span: Span) -> int:
        value = first(self.data, span, 35)
        return signed(value) if isinstance(value, int) else 0

    def _name(self, span: Span) -> str:
        return first_text(self.data, span, 1)

    def _opcode(self, span: Span) -> str:
        return first_text(self.data, span, 2)

    @cached_property
    def _places(self) -> dict[str, tuple[_Part, int]]:
        """Where each instruction stands, by name; names are unique in a module."""
        return {self._name(span): (part, number) for part, number, span in self._instructions}

    @property
    def _instructions(self) -> Iterator[tuple[_Part, int, Span]]:
        """Every instruction: its computation, its number and where it lies."""
        return ((part, *each) for part in self._parts.values() for each in part.instructions.items())

    @cached_property
    def _frames(self) -> dict[int, str]:
        return frame_lines(self._tables)

    @cached_property
    def _payloads(self) -> list[Span]:
        return self._fields.spans(22)

    def _payload(self, number: int) -> bytes:
        if not 0 <= number < len(self._payloads):
            return b""
        start, end = self._payloads[number]
        return self.data[start:end]

    def line(self, name: str) -> ProgramLine | None:
        """One instruction, with the shapes of its operands."""
        place = self._places.get(name)
        if place is None:
            return None
        part, number = place
        op = Message(self.data, part.instructions[number])
        written = self._instruction(op, part, lambda each: self._shaped(part, each))
        rest = f",{written.text}" if written.text else ""
        told = f"%{written.name} = {written.result} {written.opcode}({written.arguments}){rest}"
        metadata = op.one(7)
        return ProgramLine(told, metadata.word(2) if metadata else "", source_line(written.text, self._frames))

    def _shaped(self, part: _Part, number: int) -> str:
        span = part.instructions.get(number)
        if span is None:
            return f"%{number}"
        op = Message(self.data, span)
        return f"{shape_text(op.one(3))} %{op.word(1)}"

    def _instruction(self, op: Message, part: _Part, operand: Callable[[int], str]) -> Instruction:
        opcode = op.word(2)
        inner = self._wrapped(op, part) if opcode.startswith("async-") else None
        if opcode == "parameter":
            arguments = str(op.whole(9))
        elif opcode == "constant":
            arguments = constant_text(op.one(8))
        else:
            arguments = ", ".join(map(operand, op.wholes(36)))
        told = attributes(op, self._called, self._payload, inner if opcode == "async-start" else None)
        if inner is not None:  # XLA prints `fusion-start` where the started computation is one fusion
            opcode = inner.word(2) + opcode.removeprefix("async")
        return Instruction(op.word(1), opcode, shape_text(op.one(3)), arguments, told)

    def _wrapped(self, op: Message, part: _Part) -> Message | None:
        """The one instruction that an asynchronous one starts, updates or ends."""
        for _ in range(_LONGEST_CHAIN):
            if op.word(2) == "async-start":
                break
            span = part.instructions.get((op.wholes(36) or [-1])[0])
            if span is None:
                return None
            op = Message(self.data, span)
        called = self._parts.get((op.wholes(38) or [-1])[0])
        return self._single(called) if called else None

    def _single(self, part: _Part) -> Message | None:
        """The instruction of a computation that has one beside its parameters."""
        if len(part.instructions) > _MOST_OPERANDS:
            return None
        found = [Message(self.data, span) for span in part.instructions.values()]
        others = [op for op in found if op.word(2) != "parameter"]
        return others[0] if len(others) == 1 else None

    @cached_property
    def _hidden(self) -> set[int]:
        """Computations that stand only behind an asynchronous start and are written with it."""
        starts = (span for _, _, span in self._instructions if self._opcode(span) == "async-start")
        called = {each for span in starts for each in Message(self.data, span).wholes(38)}
        return {each for each in called if each in self._parts and self._single(self._parts[each]) is not None}

    def _called(self, number: int) -> str:
        part = self._parts.get(number)
        return part.name if part else str(number)

    @cached_property
    def module(self) -> Module:
        """The whole program, its instructions in the order in which they run where that is known."""
        entry = self._fields.whole(6)
        order = self._order
        found: dict[str, Computation] = {}
        for part in self._parts.values():
            if part.number in self._hidden:
                continue
            names = {number: self._name(span) for number, span in part.instructions.items()}
            lines = (part.instructions.get(each) for each in order.get(part.number, part.instructions))
            ops = (Message(self.data, span) for span in lines if span is not None)
            written = tuple(
                self._instruction(op, part, lambda each, names=names: f"%{names.get(each, each)}") for op in ops
            )
            found[part.name] = Computation(part.name, written, part.number == entry, names.get(part.root, ""))
        if not any(each.is_entry for each in found.values()):
            raise Broken("a program without an entry")
        return Module(found, self._header, self._tables)

    @cached_property
    def sequences(self) -> list[list[tuple[str, str]]]:
        """The instructions of each computation that is no fusion's, in the order in which they run: each with its kind.

        The kind is the opcode; of a call out of the program, what it calls; of a fusion, its name, after which its
        kernel is named.
        """
        found: list[list[tuple[str, str]]] = []
        for part in self._parts.values():
            order = self._order.get(part.number, [] if self._order else part.instructions)
            spans = [part.instructions[each] for each in order if each in part.instructions]
            found.append([(self._name(span), self._kind(span, part)) for span in spans])
        return found

    def _kind(self, span: Span, part: _Part) -> str:
        opcode = self._opcode(span)
        if opcode == "fusion":
            return f"fusion:{self._name(span)}"
        if opcode == "custom-call":
            return f"call:{Message(self.data, span).word(28)}"
        inner = self._wrapped(Message(self.data, span), part) if opcode == "async-start" else None
        return f"{inner.word(2)}-start" if inner else opcode

    @cached_property
    def _order(self) -> dict[int, list[int]]:
        schedule = self._fields.one(7)
        found: dict[int, list[int]] = {}
        for entry in schedule.all(1) if schedule else []:
            sequence = entry.one(2)
            if sequence is not None:
                found[entry.whole(1)] = sequence.wholes(1)
        return found

    @cached_property
    def _header(self) -> str:
        words = [f"HloModule {self.name}", *(["is_scheduled=true"] if self._fields.has(7) else [])]
        devices = self._fields.one(15)
        for key, name in ((1, "replica_count"), (2, "num_partitions")):
            if devices is not None and devices.whole(key) > 1:
                words.append(f"{name}={devices.whole(key)}")
        return ", ".join(words)

    @cached_property
    def _tables(self) -> str:
        """The tables of stack frames, as text: instructions point into them."""
        index = self._fields.one(17)
        if index is None:
            return ""
        tables = {
            "FileNames": [f'"{name}"' for name in index.words(1)],
            "FileLocations": [f"{{file_name_id={each.whole(1)} line={each.whole(3)}}}" for each in index.all(3)],
            "StackFrames": [f"{{file_location_id={each.whole(1)}}}" for each in index.all(4)],
        }
        numbered = ((name, *(f"{at} {row}" for at, row in enumerate(rows, 1))) for name, rows in tables.items())
        return "\n".join(line for lines in numbered for line in lines)


_NAMED = re.compile(r"(.*)\((\d+)\)")


class Programs(Mapping[str, Module]):
    """Programs by name (`jit_f`), and by name and number (`jit_f(12)`) where several have one name; the longer form is
    always found.

    A program becomes a `Module` when it is looked up.
    """

    def __init__(self) -> None:
        self._programs: dict[tuple[str, int], ProgramBytes] = {}
        self._names: dict[int, str] = {}
        self._numbers: dict[str, list[int]] = {}

    def take_all(self, plane: Plane) -> None:
        """The programs of a plane's table."""
        for span in plane.table.values():
            self.take(plane, span)

    def take(self, plane: Plane, span: Span) -> None:
        """An entry of a table, if it holds a program."""
        entry = Message(plane.data, span)
        for each in entry.spans(5):
            stat = Message(plane.data, each)
            if plane.labels.get(stat.whole(1)) in ("Hlo Proto", "hlo_proto") and stat.spans(6):
                match = _NAMED.fullmatch(entry.word(2))
                name, number = (match[1], int(match[2][:20])) if match else (entry.word(2), entry.whole(1))
                self._programs[name, number] = ProgramBytes(plane.data, stat.spans(6)[-1])
                self.call(number, name)

    def call(self, number: int, name: str) -> None:
        """Say the name of a program, held or not."""
        if number not in self._names:
            self._names[number] = name
            self._numbers.setdefault(name, []).append(number)

    def key(self, name: str, number: int | None) -> str:
        """The name under which a program is found, from what an event says of it."""
        match = _NAMED.fullmatch(name)
        if match:
            name, number = match[1], int(match[2][:20])
        if number is not None and number < 0:
            number += 1 << 64
        name = name or self._names.get(number if number is not None else -1, "")
        several = len(self._numbers.get(name, ())) > 1 and number in self._numbers[name]
        return f"{name}({number})" if several else name

    def instruction(self, key: str, name: str) -> ProgramLine | None:
        """An instruction of a program, or nothing where the file does not hold it."""
        program = self._program(key)
        try:
            return program.line(name) if program else None
        except Broken:  # the events are whole without it
            return None

    def sequences(self, key: str) -> list[list[tuple[str, str]]]:
        """The instructions of a program's computations in the order in which they run, with their kinds."""
        program = self._program(key)
        try:
            return program.sequences if program else []
        except Broken:
            return []

    def _program(self, key: str) -> ProgramBytes | None:
        match = _NAMED.fullmatch(key)
        if match and (match[1], int(match[2][:20])) in self._programs:
            return self._programs[match[1], int(match[2][:20])]
        held = [program for (name, _), program in self._programs.items() if name == key]
        return held[0] if held else None

    def __getitem__(self, key: str) -> Module:
        program = self._program(key)
        if program is None:
            raise KeyError(key)
        try:
            return program.module
        except Broken as error:
            raise InputError(f"The program {key} in the profile cannot be read: it has {error}.") from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._program(key) is not None

    def __iter__(self) -> Iterator[str]:
        return (self.key(name, number) for name, number in self._programs)

    def __len__(self) -> int:
        return len(self._programs)
