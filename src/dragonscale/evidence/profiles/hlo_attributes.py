"""Shapes, constants and what follows an instruction's arguments, written from its serialized form as XLA prints it.

Only what says how much an instruction computes, moves and calls is written, with its metadata and the backend's own
configuration; shardings of tuples, result accuracies, statistics and aliasing are left out. Which field of the message
becomes which attribute is a table (`hlo_proto.toml`); the forms in which values are written are the functions here.
"""

import json
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial

import msgspec

from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.protobuf import Broken, Message

_TUPLE, _BUFFER = 13, 34
_DEEPEST = 40
_COMBINED = -(1 << 63)
"""A tile's dimension that takes in the next one, printed as a star."""
_VARINTS = {4: 4, 5: 5, 8: 6, 9: 7}
_BYTES = {2: (15, "<b"), 3: (17, "<h"), 6: (3, "<B"), 7: (16, "<H"), 21: (21, "<b"), 22: (22, "<B")}
_BYTES |= {10: (11, "<e"), 11: (8, "<f"), 12: (9, "<d"), 16: (13, "<f")}
_BF16 = 16
"""Where a literal keeps a number, by its type: as a varint in a field, or as bytes of a form."""


def shape_text(shape: Message | None, depth: int = 0) -> str:
    """A shape: `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`, tuples in brackets."""
    if shape is None:
        return "()"
    if depth > _DEEPEST:
        raise Broken("tuples nested deeper than any program's")
    kind = shape.whole(2)
    if kind in (_TUPLE, _BUFFER) and shape.has(4):
        parts = [shape_text(each, depth + 1) for each in shape.all(4)]
        return f"({', '.join(parts)})" if kind == _TUPLE else f"b({parts[0]})"
    if kind == _TUPLE:
        return "()"
    dynamic = shape.wholes(6)
    dims = [f"{'<=' if any(dynamic[at : at + 1]) else ''}{size}" for at, size in enumerate(shape.wholes(3))]
    layout = _layout(shape.one(5))
    types = table("hlo_proto.toml")["types"]
    name = types[kind] if 0 < kind < len(types) else "opaque"
    return f"{name}[{','.join(dims)}]{layout}"


def _layout(layout: Message | None) -> str:
    if layout is None:
        return ""
    order = ",".join(map(str, layout.wholes(1)))
    tiles = (["*" if size == _COMBINED else str(size) for size in tile.wholes(1)] for tile in layout.all(6))
    rest = "".join(f"({','.join(tile)})" for tile in tiles)
    rest = f"T{rest}" if rest else ""
    for number, letter, least in ((16, "L", 2), (7, "E", 1), (8, "S", 1)):
        rest += f"{letter}({layout.whole(number)})" if layout.whole(number) >= least else ""
    if not order and not rest:
        return ""
    return f"{{{order}:{rest}}}" if rest else f"{{{order}}}"


def constant_text(literal: Message | None) -> str:
    """A constant: its value where it is one number (a loop's bound, a scale), `{...}` where it is an array."""
    shape = literal.one(1) if literal else None
    if literal is None or shape is None or shape.wholes(3) or shape.whole(2) == _TUPLE:
        return "{...}"
    kind = shape.whole(2)
    if kind == 1:
        return "true" if any(literal.wholes(2)) else "false"
    if kind in _VARINTS:
        return str(next(iter(literal.wholes(_VARINTS[kind])), "{...}"))
    number, form = _BYTES.get(kind, (0, ""))
    packed = isinstance(literal.parts.get(number, [(0, 0)])[-1], tuple)
    raw = literal.raw(number) if packed else literal.bits(number).to_bytes(8, "little")
    raw = b"\0\0" + raw[:2] if kind == _BF16 else raw
    if not form or len(raw) < struct.calcsize(form):
        return "{...}"
    value = struct.unpack_from(form, raw)[0]
    return f"{value:.9g}" if isinstance(value, float) else str(value)


class Attribute(msgspec.Struct, frozen=True):
    """One row of `hlo_proto.toml`."""

    form: str
    field: str
    name: str = ""
    only: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    least: int | None = None
    words: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[int, ...]:
        """The numbers of the fields from the instruction to the value."""
        return _path(self.field)

    def text(self, op: Message, opcode: str) -> str:
        """The value as it is written; empty where it is not."""
        if (self.only and opcode not in self.only) or opcode in self.unless:
            return ""
        for number in self.path[:-1]:
            if not op.has(number):
                return ""
            op = Message(op.data, op.spans(number)[-1])
        field, always = self.path[-1], opcode in self.always or "*" in self.always
        if not (op.has(field) or always) or (self.least is not None and op.whole(field) < self.least):
            return ""
        if self.words:
            return _WORDED[self.form](op, field, self.words)
        return _FORMS[self.form](op, field)


@cache
def _path(field: str) -> tuple[int, ...]:
    return tuple(map(int, field.split("."))) if field else (0,)


@cache
def _rows(part: str) -> tuple[tuple[int, Attribute], ...]:
    """The rows of a part, each with the field of the instruction that it needs; 0 where it may be written without."""
    rows = msgspec.convert(table("hlo_proto.toml")[part], tuple[Attribute, ...])
    return tuple((0 if row.always - {"*"} else row.path[0], row) for row in rows)


def _attributes(part: str, op: Message, opcode: str, others: dict[str, Callable[[], str]]) -> list[str]:
    """The attributes of one part of the table; `others` are forms that need more than the field."""
    found: list[str] = []
    for field, row in _rows(part):
        if field and field not in op.parts:
            continue
        text = others[row.form]() if row.form in others else row.text(op, opcode)
        if text:
            found.append(f"{row.name}={text}" if row.name else text)
    return found


def attributes(
    op: Message, named: Callable[[int], str], payloads: Callable[[int], bytes], inner: Message | None = None
) -> str:
    """The text of an instruction behind its arguments; `named` gives a computation's name, `payloads` a shared piece.

    Where an asynchronous start wraps one instruction (`inner`), what that one computes and calls is written.
    """
    outer, op = op, inner or op
    opcode = op.word(2)
    others = {"groups": partial(_groups, op, opcode), "calls": partial(_calls, op, opcode, named)}
    parts = _attributes("attribute", op, opcode, others) + _attributes("outer", outer, opcode, {})
    metadata = outer.one(7)
    if metadata is not None and (words := _attributes("metadata", metadata, "", {})):
        parts.append(f"metadata={{{' '.join(words)}}}")
    if config := _config(outer, payloads):
        parts.append(f"backend_config={config}")
    return "".join(f", {part}" for part in parts).removeprefix(",")


def _ints(values: Sequence[int]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def _slices(op: Message, field: int) -> str:
    def one(part: Message) -> str:
        stride = f":{part.whole(3)}" if part.whole(3) not in (0, 1) else ""
        return f"[{part.whole(1)}:{part.whole(2)}{stride}]"

    return f"{{{', '.join(map(one, op.all(field)))}}}"


def _paddings(op: Message, field: int) -> str:
    def one(part: Message) -> str:
        return f"{part.whole(1)}_{part.whole(2)}" + (f"_{part.whole(3)}" if part.whole(3) else "")

    return "x".join(map(one, op.all(field)))


def _window(op: Message, field: int) -> str:
    """`{size=3x3 stride=2x2 pad=1_1x1_1}`, with what is not the default."""
    dims = Message(op.data, op.spans(field)[-1]).all(1)
    columns = {
        "size": [str(each.whole(1)) for each in dims],
        "stride": [str(each.whole(2) or 1) for each in dims],
        "pad": [f"{each.whole(3)}_{each.whole(4)}" for each in dims],
        "lhs_dilate": [str(each.whole(6) or 1) for each in dims],
        "rhs_dilate": [str(each.whole(5) or 1) for each in dims],
        "rhs_reversal": [str(each.whole(7)) for each in dims],
    }
    usual = {"pad": "0_0", "rhs_reversal": "0", "size": ""}
    told = {name: values for name, values in columns.items() if set(values) - {usual.get(name, "1")}}
    words = [f"{name}={'x'.join(values)}" for name, values in told.items()]
    return f"{{{' '.join(words)}}}" if words else ""


def _labels(op: Message, field: int) -> str:
    """`b01f_01io->b01f`: what each dim of input, kernel and result is."""
    numbers = Message(op.data, op.spans(field)[-1])

    def side(letters: dict[str, int], spatial: int) -> str:
        places = {numbers.whole(number): letter for letter, number in letters.items()}
        places |= {place: str(count) for count, place in enumerate(numbers.wholes(spatial))}
        return "".join(places[place] for place in sorted(places))

    return f"{side({'b': 7, 'f': 8}, 11)}_{side({'i': 3, 'o': 4}, 6)}->{side({'b': 9, 'f': 10}, 12)}"


def _calls(op: Message, opcode: str, named: Callable[[int], str]) -> str:
    """The computations that it runs, in their roles."""
    called = [f"%{named(each)}" for each in op.wholes(38)]
    if not called or opcode in ("async-update", "async-done"):
        return ""
    if opcode == "while" and len(called) == 2:
        return f"condition={called[1]}, body={called[0]}"
    if opcode == "select-and-scatter" and len(called) == 2:
        return f"select={called[0]}, scatter={called[1]}"
    several = {"conditional": "branch_computations", "custom-call": "called_computations"}
    if opcode in several:
        return f"{several[opcode]}={{{', '.join(called)}}}"
    return f"{'to_apply' if opcode in table('hlo_proto.toml')['applied'] else 'calls'}={called[0]}"


def _groups(op: Message, opcode: str) -> str:
    """The devices of a collective as they are written: listed, by iota, or by mesh axes."""
    if (iota := op.one(92)) is not None:
        return _iota(iota)
    if (mesh := op.one(93)) is not None:
        return _mesh_groups(mesh)
    if not opcode.startswith(tuple(table("hlo_proto.toml")["grouped"])) or opcode.endswith("-done"):
        return ""
    listed = op.one(87)
    old = listed.one(2) if listed else None  # an iota list, as it was written for a while
    groups = listed.all(1) if listed else op.all(49)
    return _iota(old) if old else f"{{{','.join(_ints(each.wholes(1)) for each in groups)}}}"


def _turned(order: list[int]) -> str:
    """`T(1,0)`, where an order is not the plain one."""
    return f"T({','.join(map(str, order))})" if order != sorted(order) else ""


def _iota(groups: Message) -> str:
    """`[2,4]<=[4,2]T(1,0)`."""
    sizes = ",".join(map(str, groups.wholes(3)))
    return f"[{groups.whole(1)},{groups.whole(2)}]<=[{sizes}]{_turned(groups.wholes(4))}"


def _mesh_groups(groups: Message) -> str:
    """`mesh['x'=2,'y'=4] {'x'}`, with the order of devices where it is not the plain one."""
    mesh = groups.one(1)
    axes = mesh.all(1) if mesh else []
    order = ""
    if mesh is not None and (iota := mesh.one(3)) is not None:
        if len(iota.wholes(1)) > 1:
            turned = ",".join(map(str, iota.wholes(2)))
            order = f", device_ids=([{','.join(map(str, iota.wholes(1)))}]T({turned}))"
    elif mesh is not None and mesh.has(2):
        order = f", device_ids=({','.join(map(str, mesh.wholes(2)))})"
    used: list[str] = []
    for each in groups.all(2):
        place, part = each.whole(1), each.one(2)
        name = axes[place].word(1) if 0 <= place < len(axes) else str(place)
        used.append(f"'{name}'" + (f":({part.whole(1)}){part.whole(2)}" if part else ""))
    sizes = ",".join(f"'{each.word(1)}'={each.whole(2)}" for each in axes)
    return f"mesh[{sizes}]{order} {{{','.join(used)}}}"


def _sharding(op: Message, field: int) -> str:
    """How a tensor was split: `{replicated}`, `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`; of tuples nothing."""
    split = Message(op.data, op.spans(field)[-1])
    plain = {0: "{replicated}", 1: f"{{maximal device={(split.wholes(4) or [0])[0]}}}", 4: "{manual}"}
    if split.whole(1) != 3:
        return plain.get(split.whole(1), "")
    tiles, sizes, listed = (",".join(map(str, split.wholes(number))) for number in (3, 9, 4))
    devices = listed or f"<=[{sizes}]{_turned(split.wholes(10))}"
    return f"{{devices=[{tiles}]{devices}{' last_tile_dim_replicate' if split.whole(6) else ''}}}"


def _frontend(op: Message, field: int) -> str:
    pairs = sorted((each.word(1), each.word(2)) for each in Message(op.data, op.spans(field)[-1]).all(1))
    # values that are JSON themselves are printed without quotes
    texts = (f"{key}={value if value.startswith('{') else json.dumps(value)}" for key, value in pairs)
    return f"{{{','.join(texts)}}}" if pairs else ""


def _escaped(op: Message, field: int) -> str:
    """A text in quotes, with what XLA escapes escaped."""
    word = op.word(field)
    return json.dumps(word, ensure_ascii=False).replace("'", "\\'") if word else ""


def _config(op: Message, payloads: Callable[[int], bytes]) -> str:
    """What the backend wrote for itself, where it is text: JSON as it is, other text in quotes."""
    raw = op.raw(43)
    payload = op.one(99)
    if not raw and payload is not None:
        raw = payload.raw(1) or (payloads(payload.whole(2)) if payload.has(2) else b"")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return ""
    if text.startswith("{"):
        return text
    return json.dumps(text) if text.isprintable() and text else ""


_FORMS: dict[str, Callable[[Message, int], str]] = {
    "ints": lambda op, field: _ints(op.wholes(field)),
    "first": lambda op, field: str((op.wholes(field) or [0])[0]),
    "whole": lambda op, field: str(op.whole(field)),
    "flag": lambda op, field: "true" if op.whole(field) else "",
    "word": lambda op, field: op.word(field),
    "quoted": lambda op, field: f'"{op.word(field)}"' if op.word(field) else "",
    "thread": lambda op, field: f'"{op.word(field)}"' if op.word(field) not in ("", "main") else "",
    "total": lambda op, field: "TOTALORDER" if op.word(field) == "TOTALORDER" else "",
    "escaped": _escaped,
    "slices": _slices,
    "paddings": _paddings,
    "window": _window,
    "labels": _labels,
    "pairs": lambda op, field: f"{{{','.join(_ints((each.whole(1), each.whole(2))) for each in op.all(field))}}}",
    "shapes": lambda op, field: f"{{{', '.join(map(shape_text, op.all(field)))}}}",
    "sharding": _sharding,
    "frontend": _frontend,
}
_WORDED: dict[str, Callable[[Message, int, tuple[str, ...]], str]] = {
    "enum": lambda op, field, words: words[op.whole(field)] if 0 <= op.whole(field) < len(words) else "",
    "precisions": lambda op, field, words: (
        f"{{{','.join(words[value % len(words)] for value in op.wholes(field))}}}" if any(op.wholes(field)) else ""
    ),
}
"""Forms of values: a function of the message and the field's number, and of the words of an enumeration."""
