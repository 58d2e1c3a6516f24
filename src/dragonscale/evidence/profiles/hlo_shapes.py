"""Shapes, layouts and constants of a serialized program, as XLA prints them."""

import struct

from dragonscale.evidence.profiles.protobuf import Broken, Message

_TYPES = {
    **{1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32"},
    **{12: "f64", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn"},
    **{21: "s4", 22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3"},
    **{29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu", 34: "b", 35: "f6e3m2fn", 36: "f6e2m3fn"},
}
_TUPLE = 13
_DEEPEST = 40
_COMBINED = -(1 << 63)
"""A tile's dimension that takes in the next one, printed as a star."""
_INTEGERS = {2: 15, 3: 17, 4: 4, 5: 5, 6: 3, 7: 16, 8: 6, 9: 7, 21: 21, 22: 22}
_SIZES = {2: 1, 3: 2, 6: 1, 7: 2, 21: 1, 22: 1}
"""Bytes of an integer in a literal that keeps them as bytes; the others are varints."""


def shape_text(shape: Message | None, layouts: bool = True, depth: int = 0) -> str:
    """A shape: `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`, tuples in brackets."""
    if shape is None:
        return "()"
    if depth > _DEEPEST:
        raise Broken("tuples nested deeper than any program's")
    kind = shape.whole(2)
    if kind in (_TUPLE, 34) and shape.has(4):
        parts = [shape_text(each, layouts, depth + 1) for each in shape.all(4)]
        return f"({', '.join(parts)})" if kind == _TUPLE else f"b({parts[0]})"
    if kind == _TUPLE:
        return "()"
    dynamic = shape.wholes(6)
    dims = [
        f"{'<=' if place < len(dynamic) and dynamic[place] else ''}{size}" for place, size in enumerate(shape.wholes(3))
    ]
    layout = _layout(shape.one(5)) if layouts else ""
    return f"{_TYPES.get(kind, 'opaque')}[{','.join(dims)}]{layout}"


def _layout(layout: Message | None) -> str:
    if layout is None:
        return ""
    order = ",".join(map(str, layout.wholes(1)))
    rest = "".join(
        f"({','.join('*' if size == _COMBINED else str(size) for size in tile.wholes(1))})" for tile in layout.all(6)
    )
    rest = f"T{rest}" if rest else ""
    if layout.whole(16) > 1:
        rest += f"L({layout.whole(16)})"
    if layout.whole(7):
        rest += f"E({layout.whole(7)})"
    if layout.whole(8):
        rest += f"S({layout.whole(8)})"
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
