"""Profiles in XProf's form, written field by field: a TPU's, and a real one cut short."""

import struct

from dragonscale.evidence.profiles.protobuf import Span, fields

STATS = (
    "device_type_string",
    "peak_teraflops_per_second",
    "peak_hbm_bw_gigabytes_per_second",
    "flops",
    "bytes_accessed",
    "memory_access_breakdown",
    "tf_op",
    "program_id",
    "hlo_category",
    "run_id",
    "_c",
    "_ct",
    "_p",
    "_pt",
    "convolution fusion",
)


def number(value: int) -> bytes:
    """A varint."""
    parts = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(key: int, value: "int | bytes | str | float") -> bytes:
    """A field: a varint, a piece or a float."""
    if isinstance(value, float):
        return number(key << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return number(key << 3) + number(value)
    piece = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(piece)) + piece


def stat(name: str, value: "int | bytes | str | float") -> bytes:
    """A statistic; a text that is in the table is a reference."""
    label = field(1, STATS.index(name) + 1)
    if isinstance(value, str) and value in STATS:
        return label + field(7, STATS.index(value) + 1)
    key = 2 if isinstance(value, float) else 4 if isinstance(value, int) else 5 if isinstance(value, str) else 6
    return label + field(key, value)


def event(entry: int, offset: int, duration: int, **stats: "int | str") -> bytes:
    """An event of a line."""
    told = b"".join(field(4, stat(name, value)) for name, value in stats.items())
    return field(4, field(1, entry) + field(2, offset) + (field(3, duration) if duration else b"") + told)


def line(name: str, *events: bytes, at: int = 0) -> bytes:
    """A line of a plane."""
    return field(3, field(2, name) + field(3, at) + b"".join(events))


def entry(key: int, name: str, *stats: bytes) -> bytes:
    """An entry of a plane's table of events."""
    return field(
        4, field(1, key) + field(2, field(1, key) + field(2, name) + b"".join(field(5, each) for each in stats))
    )


def plane(name: str, *parts: bytes) -> bytes:
    """A plane with the table of names of statistics."""
    labels = b"".join(
        field(5, field(1, key) + field(2, field(1, key) + field(2, each))) for key, each in enumerate(STATS, 1)
    )
    return field(1, field(2, name) + b"".join(parts) + labels)


def tpu() -> bytes:
    """A step of a TPU: a loop with two dots in it, a copy of no duration, an asynchronous copy, and the host that
    launched it."""
    breakdown = field(1, field(1, 1) + field(2, 1) + field(3, 256)) + field(
        1, field(1, 2) + field(2, 2) + field(3, 128)
    )
    program = 1 << 63 | 5
    dot = (stat("flops", 1024), stat("bytes_accessed", 384), stat("memory_access_breakdown", breakdown))
    dot += (
        stat("tf_op", "jit(f)/mlp/dot_general:"),
        stat("hlo_category", "convolution fusion"),
        stat("program_id", program),
    )
    device = plane(
        "/device:TPU:0",
        line("XLA Modules", event(1, 2_000_000, 1_000_000, run_id=41, _ct=12, _c=-77), at=1000),
        line(
            "XLA Ops",
            event(2, 2_000_000, 1_000_000),
            event(3, 2_000_000, 500_400),
            event(3, 2_600_000, 400_000),
            event(4, 3_000_000, 0),
            at=1000,
        ),
        line("Async XLA Ops", event(4, 2_100_000, 300_000), at=1000),
        line("Steps", event(5, 2_000_000, 1_000_000), at=1000),
        line("_counters_", event(3, 0, 1)),
        entry(1, f"jit_f({program})"),
        entry(2, "%while.1 = (f32[8,8]{1,0}) while((f32[8,8]{1,0}) %t), condition=%c, body=%b"),
        entry(
            3, "%dot.3 = f32[8,8]{1,0:T(8,128)} dot(f32[8,8]{1,0} %a, f32[8,8]{1,0} %b), lhs_contracting_dims={1}", *dot
        ),
        entry(4, "%copy.9 = f32[] copy(f32[] %a)"),
        entry(5, "7"),
        field(6, stat("device_type_string", "TPU v6 Lite")),
        field(6, stat("peak_teraflops_per_second", 918.0)),
        field(6, stat("peak_hbm_bw_gigabytes_per_second", 1600.0)),
    )
    host = plane(
        "/host:CPU",
        line("main", event(1, 0, 5_000_000), event(2, 1_000_000, 2_000, _pt=12, _p=-77), at=1000),
        entry(1, "PjitFunction(f)"),
        entry(2, "Enqueue"),
    )
    return device + host


def shortened(data: bytes, events: int = 40, program: int = 6000) -> bytes:
    """A real profile with the first events of each line, and without large programs: small enough to break in many
    ways."""
    return b"".join(
        field(1, b"".join(_plane_part(data, key, value, events, program) for key, _, value in fields(data, *span)))
        for number_, _, span in fields(data, 0, len(data))
        if number_ == 1 and isinstance(span, tuple)
    )


def _plane_part(data: bytes, key: int, value: "int | Span", events: int, most: int) -> bytes:
    if isinstance(value, int):
        return field(key, value)
    piece = data[value[0] : value[1]]
    if key == 3:
        seen = 0
        kept = b""
        for number_, _, each in fields(data, *value):
            seen += number_ == 4
            if number_ != 4 or seen <= events:
                kept += field(number_, each if isinstance(each, int) else data[each[0] : each[1]])
        piece = kept
    return b"" if key == 4 and len(piece) > most else field(key, piece)
