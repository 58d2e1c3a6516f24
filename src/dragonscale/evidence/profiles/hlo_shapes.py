"""Shapes, layouts and constants of a serialized program, as XLA prints them."""

import struct

from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.protobuf import Broken, Message

_TUPLE, _BUFFER = 13, 34
_DEEPEST = 40
_COMBINED = -(1 << 63)
"""A tile's dimension that takes in the next one, printed as a star."""
_INTEGERS = {2: 15, 3: 17, 4: 4, 5: 5, 6: 3, 7: 16, 8: 6, 9: 7, 21: 21, 22: 22}
_SIZES = {2: 1, 3: 2, 6: 1, 7: 2, 21: 1, 22: 1}
"""Bytes of an integer in a literal that keeps them as bytes; the others are varints."""


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
    dims = [
        f"{'<=' if place < len(dynamic) and dynamic[place] else ''}{size}" for place, size in enumerate(shape.wholes(3))
    ]
    layout = _layout(shape.one(5))
    types = table("hlo_proto.toml")["types"]
    name = types[kind] if 0 < kind < len(types) else "opaque"
    return f"{name}[{','.join(dims)}]{layout}"


def _layout(layout: Message | None) -> str:
    if layout is None:
        return ""
    order = ",".join(map(str, layout.wholes(1)))
    rest = "".join(
        f"({','.join('*' if size == _COMBINED else str(size) for size in tile.wholes(1))})" for tile in layout.all(6)
    )
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
    if kind in _INTEGERS:
        return _integer(literal, kind)
    return _real(literal, kind)


def _integer(literal: Message, kind: int) -> str:
    number = _INTEGERS[kind]
    if kind in _SIZES:
        return str(int.from_bytes(literal.raw(number)[: _SIZES[kind]], "little", signed=kind in (2, 3, 21)))
    values = literal.wholes(number)
    return str(values[0]) if values else "{...}"


def _real(literal: Message, kind: int) -> str:
    """A real number; 32 bits are enough for any that a reader looks at."""
    number, form = {10: (11, "<e"), 11: (8, "<f"), 12: (9, "<d"), 16: (13, "")}.get(kind, (0, ""))
    raw = literal.raw(number)
    single = literal.parts.get(number, [b""])[-1]
    if isinstance(single, int):  # a repeated number that is not packed
        raw = single.to_bytes(8, "little")
    if kind == 16 and len(raw) >= 2:
        raw, form = b"\0\0" + raw[:2], "<f"
    if not form or len(raw) < struct.calcsize(form):
        return "{...}"
    return f"{struct.unpack(form, raw[: struct.calcsize(form)])[0]:.9g}"
