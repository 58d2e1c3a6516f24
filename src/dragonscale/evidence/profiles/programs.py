"""The programs that a profile holds, found by the names that its events give them."""

import re
from collections.abc import Iterator, Mapping

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.hlo_proto import ProgramBytes, ProgramLine
from dragonscale.evidence.profiles.protobuf import Broken, Message, Span
from dragonscale.evidence.profiles.xspace import Plane
from dragonscale.evidence.xla.hlo_text import Module

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
