"""HLO text as records: a module of computations, each a list of instructions.

Only the structure is read here (shapes, opcodes, operands, attributes as text); what an instruction means is the
business of its readers. A line that is neither an instruction, nor a computation's head, nor part of the module's own
tables is an error, because a reader that skips what it does not know gives wrong sums without a word.

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

Where in the user's program an instruction comes from.

Older compilers write the file and line into each instruction's metadata. Newer ones write a number: the stack frame, to
be looked up in four tables at the top of the module (file names, function names, locations and frames).

>>> tables = '''FileNames
... 1 "model.py"
...
... FileLocations
... 1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=3 end_column=9}
...
... StackFrames
... 7 {file_location_id=1 parent_frame_id=1}'''
>>> frame_lines(tables)
{7: 'model.py:12'}
>>> source_line(' metadata={op_name="f" stack_frame_id=7}', frame_lines(tables))
'model.py:12'
>>> source_line(' metadata={source_file="old.py" source_line=3}', {})
'old.py:3'
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.layouts import Shape, read_shapes

_INSTRUCTION = re.compile(r"\s*(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>(?:\(|[a-z]\w*\[).*)", re.DOTALL)
_TYPE = re.compile(r"[a-z]\w*\[[^\]]*\]")
_HEAD = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[A-Za-z_][\w.\-]*) (?:\(.*)?\{\s*")
"""A computation's first line. Compilers write its parameters and result, JAX's `lowered.as_text("hlo")` only a brace.
"""
_TAIL = re.compile(r"\}(?:, execution_thread=\"\w+\")?\s*")
_ATTRIBUTE = re.compile(r"([\w.\-]+)=(.*)", re.DOTALL)
_TABLES = re.compile(r"(?:FileNames|FunctionNames|FileLocations|StackFrames|\d+ .*)\s*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|\{\{\d+(?:,\d+)*(?:\},\{\d+(?:,\d+)*)*\}\}|[()\[\]{},]', re.DOTALL)
"""What a walk over brackets has to stop at; the rest, long lists of devices too, is skipped at the regex engine's
speed. No text makes it look at the same characters more than a few times: a quote that never closes goes to the end."""
_DEEPEST = 1000
_LONG = 4000
_CALL = re.compile(r"\s*([\w\-]+)\(")
_PLAIN = re.compile(r"[^()\[\]{}\"]*\)")
_CALLED = re.compile(
    r"\b(calls|called_computations|to_apply|body|condition|true_computation|false_computation|branch_computations)="
    r"(\{[^{}]*\}|%?[\w.\-]+)"
)
_CALLING = ("calls=", "to_apply=", "body=", "computation")
_SHADOW = re.compile(r"[\w\-]+-(?:done|update)")
"""The matching end of an asynchronous start names the same computation and runs nothing."""
_END = re.compile(r"\b(?:metadata|backend_config|frontend_attributes)=")
COMMENT = re.compile(r"/\*[^*]*\*/")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_LONG_NAME = re.compile(r'(op_name="(?:[^"\\]|\\.){4000})(?:[^"\\]|\\.)+')
"""No path of names is so long; what is made to hurt is cut as it is read."""


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

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return sum(shape.elements for shape in self.shapes)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the instructions it uses."""
        parts = split_outside(COMMENT.sub("", self.arguments))
        return tuple(part.split()[-1].lstrip("%") for part in parts if part.strip())

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Attributes as text, by name."""
        found: dict[str, str] = {}
        last = ""
        for part in map(str.strip, split_outside(self.text)):
            match = _ATTRIBUTE.fullmatch(part)
            if match and (match[1] != "device_ids" or not found.get(last, "").startswith("mesh[")):
                last = match[1]
                found[last] = match[2]
            elif last:
                found[last] += f", {part}"  # the mesh form of replica_groups has commas of its own
        return found

    @cached_property
    def callees(self) -> tuple[tuple[str, str], ...]:
        """The role and name of each computation that it runs.

        >>> Instruction("w", "while", "s32[]", "%x", " condition=%c, body=%b").callees
        (('condition', 'c'), ('body', 'b'))
        >>> Instruction("d", "async-done", "s32[]", "%x", " calls=%wrapped").callees
        ()
        """
        if not any(word in self.text for word in _CALLING) or _SHADOW.fullmatch(self.opcode):
            return ()
        end = _END.search(self.text)
        found = _CALLED.finditer(self.text, 0, end.start() if end else len(self.text))
        return tuple((match[1], name) for match in found for name in re.findall(r"[\w.\-]+", match[2]))

    def attribute(self, name: str) -> str:
        """One attribute, or an empty string."""
        return self.attributes.get(name, "")

    def numbers(self, name: str) -> list[int]:
        """The whole numbers of an attribute that lists some."""
        return [int(number) for number in re.findall(r"\d{1,9}", self.attribute(name))]

    @property
    def target(self) -> str:
        """What a custom call calls."""
        return self.attribute("custom_call_target").strip('"')

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the backend wrote for itself (`backend_config`), empty where it wrote nothing or no JSON."""
        at = self.text.find("backend_config=")
        if at < 0:
            return {}
        try:
            found, _ = json.JSONDecoder().raw_decode(self.text, at + len("backend_config="))
            if isinstance(found, str):  # older compilers write the JSON as a string
                found = json.loads(found)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def op_name(self) -> str:
        """Where in the user's program it comes from, as JAX's path of names."""
        match = _OP_NAME.search(self.text)
        return match[1] if match else ""


@dataclass(frozen=True)
class Computation:
    """A named list of instructions, in order of execution where the module is scheduled."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool
    root: str = ""
    """The name of the instruction whose value it returns."""

    @cached_property
    def named(self) -> dict[str, Instruction]:
        """Its instructions by name."""
        return {each.name: each for each in self.instructions}

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each instruction stands."""
        return {each.name: place for place, each in enumerate(self.instructions)}

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Its parameters by their number, in order."""
        given = [each for each in self.instructions if each.opcode == "parameter" and each.arguments.strip().isdigit()]
        return {int(each.arguments): each for each in sorted(given, key=lambda each: int(each.arguments))}

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """The instructions that use each instruction's value."""
        found: dict[str, list[Instruction]] = {each.name: [] for each in self.instructions}
        for each in self.instructions:
            for name in dict.fromkeys(each.operands):
                if name in found:  # a parameter's and a constant's arguments are no names
                    found[name].append(each)
        return found


@dataclass(frozen=True, eq=False)
class Module:
    """A compiled program for one device of many; equal only to itself, so that readings of it can be remembered."""

    computations: dict[str, Computation]
    header: str = ""
    """The module's first line: its name, partitions and layouts."""
    tables: str = ""
    """The tables of file names and stack frames that instructions point into."""
    readings: dict[Any, Any] = field(default_factory=dict)
    """What readers found out about it and will ask again, each under a key of its own."""

    @cached_property
    def entry(self) -> Computation:
        """Where execution starts."""
        return next(computation for computation in self.computations.values() if computation.is_entry)

    @property
    def placed(self) -> Iterator[tuple[Computation, Instruction]]:
        """Every instruction with the computation it stands in."""
        return ((each, one) for each in self.computations.values() for one in each.instructions)

    @cached_property
    def frames(self) -> dict[int, str]:
        """The file and line of each stack frame."""
        return frame_lines(self.tables)


def _brackets(text: str, start: int = 0) -> Iterator[tuple[re.Match[str], int]]:
    """Brackets and commas, each with the depth after it; not those in a quoted text or a list of devices."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if len(token[0]) == 1:
            depth += (token[0] in "([{") - (token[0] in ")]}")
            if depth > _DEEPEST:
                raise InputError(f"The HLO text {shorten(text[start:])} has brackets more than {_DEEPEST:,} deep.")
            yield token, depth


def split_outside(text: str) -> list[str]:
    """Split at commas outside brackets and quotes.

    >>> split_outside('a={1,2}, b="x,y"')
    ['a={1,2}', ' b="x,y"']
    """
    cuts = [token.start() for token, depth in _brackets(text) if token[0] == "," and depth == 0]
    return [text[start + 1 : end] for start, end in zip([-1, *cuts], [*cuts, len(text)], strict=True)]


def _balanced(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    for token, depth in _brackets(text, start):
        if depth == 0:
            return token.end()
    raise InputError(f"The HLO text {shorten(text)} has a bracket that never closes.")


def _end_of_shape(text: str) -> int:
    """Where the shape that the text begins with ends, or 0."""
    end = text.find(" ")
    if text.startswith("("):
        return _balanced(text, 0)
    if end > 0 and text[end - 1] in "]}":
        return end
    shape = _TYPE.match(text)
    end = shape.end() if shape else 0
    return _balanced(text, end) if shape and text[end : end + 1] == "{" else end


def _read_instruction(line: str) -> tuple[Instruction, bool]:
    """One instruction, and whether it is its computation's root."""
    match = _INSTRUCTION.fullmatch(line)
    rest = match["rest"] if match else ""
    end = _end_of_shape(rest)
    call = _CALL.match(rest, end) if end else None
    if match is None or call is None:
        raise InputError(f"The HLO line {shorten(line.strip(), 200)} is not an instruction this reader knows.")
    plain = _PLAIN.match(rest, call.end())
    closed = plain.end() if plain else _balanced(rest, call.end() - 1)
    arguments, text = rest[call.end() : closed - 1], rest[closed:].removeprefix(",")
    if len(text) > _LONG:
        text = _LONG_NAME.sub(r"\1", text)
    return Instruction(match["name"], call[1], rest[:end], arguments, text), bool(match["root"])


def read_instruction(text: str) -> Instruction:
    """One instruction on its own, as profiles and papers show them; its operands may carry their shapes.

    >>> read_instruction(
    ...     "%fusion.3 = bf16[32,4096]{1,0:T(8,128)(2,1)} fusion(bf16[32,8192]{1,0} %fusion.32), kind=kLoop"
    ... ).operands
    ('fusion.32',)
    """
    return _read_instruction(text.strip().rstrip(","))[0]


def _read_computation(head: re.Match[str], lines: list[list[str]]) -> Computation:
    read = [_read_instruction("\n".join(line)) for line in lines]
    root = next((each.name for each, is_root in read if is_root), read[-1][0].name if read else "")
    return Computation(head["name"], tuple(each for each, _ in read), bool(head["entry"]), root)


def read_module(text: str, whole: bool = True) -> Module:
    """Read the text of a module, compiled (`compiled.as_text()`) or not yet (`lowered.as_text("hlo")`).

    Of a text that is not `whole`, computations may be missing: those that are called and not there are empty.
    """
    computations: dict[str, Computation] = {}
    head: re.Match[str] | None = None
    header = ""
    lines: list[list[str]] = []
    tables: list[str] = []
    for line in text.splitlines():
        if head is None:
            if line.startswith("HloModule"):
                header = line
            elif found := _HEAD.fullmatch(line):
                head = found
            elif _TABLES.fullmatch(line):
                tables.append(line)
            elif line.strip() and not line.lstrip().startswith(("//", "#")):
                raise InputError(f"The HLO line {shorten(line, 200)} stands outside a computation.")
        elif _TAIL.fullmatch(line):
            computations[head["name"]] = _read_computation(head, lines)
            head, lines = None, []
        elif _INSTRUCTION.match(line):
            lines.append([line])
        elif lines:
            lines[-1].append(line)  # some attributes span lines
        elif line.strip():
            raise InputError(f"The HLO line {shorten(line, 200)} is not an instruction.")
    if head is not None or not any(computation.is_entry for computation in computations.values()):
        raise InputError("The HLO text has no complete entry computation; give the whole text of one module.")
    fill_missing(computations, whole)
    return Module(computations, header, "\n".join(tables))


def fill_missing(computations: dict[str, Computation], whole: bool) -> None:
    """Every computation that is called must be there, or be known to be empty."""
    for computation in tuple(computations.values()):
        for each in computation.instructions:
            for _, name in each.callees:
                if name not in computations:
                    if whole:
                        runs = f"The instruction {each.name} runs {shorten(name)}"
                        raise InputError(f"{runs}, which the HLO text does not have.")
                    computations[name] = Computation(name, (), False)


_FILE = re.compile(r'(\d+) "((?:[^"\\]|\\.)*)"\s*')
_LOCATION = re.compile(r"(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)\b.*\}\s*")
_FRAME = re.compile(r"(\d+) \{file_location_id=(\d+)\b.*\}\s*")
_OLD = re.compile(r'source_file="((?:[^"\\]|\\.)*)"(?:\s+source_line=(\d+))?')
_NEW = re.compile(r"stack_frame_id=(\d+)")


def frame_lines(tables: str) -> dict[int, str]:
    """The file and line of each stack frame's innermost call."""
    files: dict[str, str] = {}
    places: dict[str, str] = {}
    frames: dict[int, str] = {}
    table = ""
    for line in tables.splitlines():
        if line.strip().isalpha():
            table = line.strip()
        elif table == "FileNames" and (match := _FILE.fullmatch(line)):
            files[match[1]] = match[2]
        elif table == "FileLocations" and (match := _LOCATION.fullmatch(line)):
            places[match[1]] = f"{files.get(match[2], '?')}:{match[3]}"
        elif table == "StackFrames" and (match := _FRAME.fullmatch(line)):
            frames[int(match[1])] = places.get(match[2], "")
    return frames


def source_line(text: str, frames: dict[int, str]) -> str:
    """`file:line` of an instruction's metadata, or an empty string."""
    if old := _OLD.search(text):
        return f"{old[1]}:{old[2]}" if old[2] else old[1]
    new = _NEW.search(text)
    return frames.get(int(new[1]), "") if new else ""
