"""Protocol buffers' wire format, as far as profiles need it: fields walked in place, nothing copied before it is
wanted.

A message is a row of fields; each begins with a varint of its number and its wire type, and says how long it is. So a
reader finds what it wants and steps over the rest at the cost of one varint, which is how a file of hundreds of
megabytes is read in the memory of its largest table. Nothing here trusts the bytes: a length beyond its message, a
varint of more than ten bytes or a wire type that nobody writes is a `Broken`, which the readers turn into one sentence.

>>> message = bytes([0x08, 0x96, 0x01, 0x12, 0x02, 0x68, 0x69])
>>> [
...     (number, value if kind == VARINT else message[value[0] : value[1]])
...     for number, kind, value in fields(message, 0, len(message))
... ]
[(1, 150), (2, b'hi')]
"""

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import TypeAlias

Buffer: TypeAlias = bytes | mmap
"""What is read: slices of either are bytes."""
Span: TypeAlias = tuple[int, int]
"""Where a message or text begins and ends."""
VARINT, EIGHT, PIECE, FOUR = 0, 1, 2, 5
"""Wire types: a varint, eight bytes, a piece with its length, four bytes."""
_MOST_SHIFT = 63
_ALL = (1 << 64) - 1


class Broken(Exception):
    """The bytes are no message; the text says why."""


class CutOff(Broken):
    """A number that the end cuts off."""


def varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint and where it ends."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return (value | byte << shift) & _ALL, at
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MOST_SHIFT:
            raise Broken("a number of more than ten bytes")
    raise CutOff("a number that the end cuts off")


def fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, "int | Span"]]:
    """Number, wire type and value of each field between two positions; a piece's value is where it lies, the others'
    are numbers."""
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, at - 1, end)
        kind = tag & 7
        if kind == PIECE:
            if at < end and data[at] < 0x80:
                start, stop = at + 1, at + 1 + data[at]
            else:
                size, start = varint(data, at, end)
                stop = start + size
            if stop > end:
                raise Broken("a field that is longer than its message")
            yield tag >> 3, kind, (start, stop)
            at = stop
        elif kind == VARINT:
            value, at = varint(data, at, end)
            yield tag >> 3, kind, value
        elif kind in (EIGHT, FOUR):
            size = 8 if kind == EIGHT else 4
            if at + size > end:
                raise Broken("a number that the end cuts off")
            yield tag >> 3, kind, int.from_bytes(data[at : at + size], "little")
            at += size
        else:
            raise Broken(f"a field of wire type {kind}")


def first(data: Buffer, span: Span, number: int) -> "int | Span | None":
    """The first field of a number, without a look at those behind it."""
    return next((value for each, _, value in fields(data, *span) if each == number), None)


def first_text(data: Buffer, span: Span, number: int) -> str:
    """The first text of a number; empty where there is none."""
    value = first(data, span, number)
    return text(data, value) if isinstance(value, tuple) else ""


def signed(value: int) -> int:
    """A varint as int64 and int32 are written: negative numbers in two's complement of 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(data: Buffer, span: Span) -> str:
    """A piece as text; bytes that are no UTF-8 are shown as such."""
    return data[span[0] : span[1]].decode("utf-8", "replace")


class Message:
    """A small message with all its fields found; what is missing is zero or empty, as protocol buffers mean it."""

    def __init__(self, data: Buffer, span: Span) -> None:
        self.data = data
        self.parts: dict[int, list[int | Span]] = {}
        for number, _, value in fields(data, *span):
            self.parts.setdefault(number, []).append(value)

    def has(self, number: int) -> bool:
        """Whether the field is written."""
        return number in self.parts

    def bits(self, number: int) -> int:
        """A number without its sign; the last counts."""
        value = self.parts.get(number, [0])[-1]
        return value if isinstance(value, int) else 0

    def whole(self, number: int) -> int:
        """A whole number; the last counts."""
        return signed(self.bits(number))

    def real(self, number: int) -> float:
        """A float64; the last counts."""
        return struct.unpack("<d", self.bits(number).to_bytes(8, "little"))[0]

    def wholes(self, number: int) -> list[int]:
        """A repeated whole number: packed into a piece, or one field each."""
        found: list[int] = []
        for value in self.parts.get(number, ()):
            at, end = value if isinstance(value, tuple) else (0, 0)
            if isinstance(value, int):
                found.append(signed(value))
            while at < end:
                each, at = varint(self.data, at, end)
                found.append(signed(each))
        return found

    def word(self, number: int) -> str:
        """A text; the last counts."""
        return self.raw(number).decode("utf-8", "replace")

    def raw(self, number: int) -> bytes:
        """A piece's bytes; the last counts."""
        value = self.parts.get(number, [0])[-1]
        return self.data[value[0] : value[1]] if isinstance(value, tuple) else b""

    def words(self, number: int) -> list[str]:
        """A repeated text."""
        return [text(self.data, span) for span in self.spans(number)]

    def spans(self, number: int) -> list[Span]:
        """Where the messages of a field lie."""
        return [value for value in self.parts.get(number, []) if isinstance(value, tuple)]

    def all(self, number: int) -> "list[Message]":
        """The messages of a field."""
        return [Message(self.data, span) for span in self.spans(number)]

    def one(self, number: int) -> "Message | None":
        """The message of a field that has at most one."""
        spans = self.spans(number)
        return Message(self.data, spans[-1]) if spans else None
