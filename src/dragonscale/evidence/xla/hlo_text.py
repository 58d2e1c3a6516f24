"""HLO text as records: a module of computations, each a list of instructions.

Only the structure is read here (shapes, opcodes, operands, attributes as text); what an instruction means is the business
of its readers. A line that is neither an instruction, nor a computation's head, nor part of the module's own tables is
an error, because a reader that skips what it does not know gives wrong sums without a word.

>>> module = read_module('''
... HloModule jit_f
...
... ENTRY %main (p: bf16[8,4]) -> bf16[8,16] {
...   %p = bf16[8,4]{1,0} parameter(0)
...   ROOT %g = bf16[8,16]{1,0} all-gather(%p), replica_groups=[2,4]<=[8], dimensions={1}
... }
... ''')
>>> gather = module.entry.instructions[-1]
>>> gather.opcode, gather.shapes, gather.operands, gather.attribute("dimensions")
('all-gather', (Shape(dtype='bf16', dims=(8, 16)),), ('p',), '{1}')
"""

import math
import re
from dataclasses import dataclass
from functools import cached_property

from dragonscale.errors import InputError, shorten

BITS = {
    **{"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128},
    **{f"{sign}{bits}": bits for sign in "su" for bits in (2, 4, 8, 16, 32, 64)},
    **dict.fromkeys(("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4"), 8),
    **{"f8e8m0fnu": 8, "f4e2m1fn": 4},
}

_INSTRUCTION = re.compile(r"\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)", re.DOTALL)
_HEAD = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .*\{\s*")
_TAIL = re.compile(r"\}(?:, execution_thread=\"\w+\")?\s*")
_SHAPE = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<dims>[^\]]*)\]")
_ATTRIBUTE = re.compile(r"([\w.\-]+)=(.*)", re.DOTALL)
_TABLES = re.compile(r"(?:FileNames|FunctionNames|FileLocations|StackFrames|\d+ .*)\s*")
_CLOSING = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True)
class Shape:
    """The type and sizes of one array, as one device holds it."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> float:
        """Bytes of the array (a fraction where elements are smaller than a byte)."""
        return math.prod(self.dims) * BITS[self.dtype] / 8


@dataclass(frozen=True)
class Instruction:
    """One instruction; `text` is all that follows the opcode's arguments."""

    name: str
    opcode: str
    result: str
    arguments: str
    text: str

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The arrays of the result; nested tuples in order."""
        return read_shapes(self.result)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the instructions it uses."""
        parts = [part.split()[-1].lstrip("%") for part in split_outside(self.arguments) if part.strip()]
        return tuple(parts)

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Attributes as text, by name."""
        found: dict[str, str] = {}
        last = ""
        for part in split_outside(self.text):
            match = _ATTRIBUTE.fullmatch(part.strip())
            if match is None or (match[1] == "device_ids" and found.get(last, "").startswith("mesh[")):
                if not last:
                    continue
                found[last] += f", {part.strip()}"  # the mesh form of replica_groups has commas of its own
            else:
                last = match[1]
                found[last] = match[2]
        return found

    def attribute(self, name: str) -> str:
        """One attribute, or an empty string."""
        return self.attributes.get(name, "")

    @property
    def op_name(self) -> str:
        """Where in the user's program it comes from, as JAX's path of names."""
        match = re.search(r'op_name="((?:[^"\\]|\\.)*)"', self.text)
        return match[1] if match else ""


@dataclass(frozen=True)
class Computation:
    """A named list of instructions, in order of execution where the module is scheduled."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool


@dataclass(frozen=True)
class Module:
    """A compiled program for one device of many."""

    computations: dict[str, Computation]

    @cached_property
    def entry(self) -> Computation:
        """Where execution starts."""
        return next(computation for computation in self.computations.values() if computation.is_entry)


def split_outside(text: str, separator: str = ",") -> list[str]:
    """Split at separators outside brackets and quotes.

    >>> split_outside('a={1,2}, b="x,y"')
    ['a={1,2}', ' b="x,y"']
    """
    parts: list[str] = []
    depth, start, quoted, position = 0, 0, False, 0
    while position < len(text):
        character = text[position]
        if quoted:
            position += character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    parts.append(text[start:])
    return parts


def read_shapes(text: str) -> tuple[Shape, ...]:
    """Every array in a shape or tuple of shapes, in order.

    >>> read_shapes("((bf16[32,64]{0,1}), f32[])")
    (Shape(dtype='bf16', dims=(32, 64)), Shape(dtype='f32', dims=()))
    """
    shapes: list[Shape] = []
    for match in _SHAPE.finditer(text):
        if match["dtype"] not in BITS:
            raise InputError(f"The shape {shorten(text)} has the unknown element type {match['dtype']!r}.")
        sizes = [part.strip().removeprefix("<=") for part in match["dims"].split(",") if part.strip()]
        shapes.append(Shape(match["dtype"], tuple(map(int, sizes))))
    return tuple(shapes)


def _balanced(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    closers: list[str] = []
    quoted, position = False, start
    while position < len(text):
        character = text[position]
        if quoted:
            position += character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif character in _CLOSING:
            closers.append(_CLOSING[character])
        elif closers and character == closers[-1]:
            closers.pop()
            if not closers:
                return position + 1
        position += 1
    raise InputError(f"The HLO text {shorten(text)} has a bracket that never closes.")


def _read_instruction(line: str) -> Instruction:
    match = _INSTRUCTION.fullmatch(line)
    assert match is not None
    rest = match["rest"]
    end = _balanced(rest, 0) if rest.startswith("(") else rest.find(" ")
    call = re.compile(r"\s*([\w\-]+)\(").match(rest, end) if end > 0 else None
    if call is None:
        raise InputError(f"The HLO line {shorten(line.strip(), 200)} is not an instruction this reader knows.")
    closed = _balanced(rest, call.end() - 1)
    arguments, text = rest[call.end() : closed - 1], rest[closed:].removeprefix(",")
    return Instruction(match["name"], call[1], rest[:end], arguments, text)


def read_module(text: str) -> Module:
    """Read the text of a compiled module (`compiled.as_text()`)."""
    computations: dict[str, Computation] = {}
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if head is None:
            head = _HEAD.fullmatch(line)
            if head is None and line.strip() and not line.startswith("HloModule") and not _TABLES.fullmatch(line):
                raise InputError(f"The HLO line {shorten(line, 200)} stands outside a computation.")
        elif _TAIL.fullmatch(line):
            body = tuple(_read_instruction(entry) for entry in lines)
            computations[head["name"]] = Computation(head["name"], body, bool(head["entry"]))
            head, lines = None, []
        elif _INSTRUCTION.fullmatch(line):
            lines.append(line)
        elif lines:
            lines[-1] += "\n" + line  # some attributes span lines
        elif line.strip():
            raise InputError(f"The HLO line {shorten(line, 200)} is not an instruction.")
    if head is not None or not any(computation.is_entry for computation in computations.values()):
        raise InputError("The HLO text has no complete entry computation; give the whole text of one module.")
    return Module(computations)
