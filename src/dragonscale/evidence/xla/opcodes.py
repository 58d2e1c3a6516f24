"""HLO's opcodes by what they cost and do: functions, arithmetic on elements, names for values, kinds of work
(`opcodes.toml`)."""

import tomllib
from pathlib import Path

_TABLE = tomllib.loads(Path(__file__).with_name("opcodes.toml").read_text("utf-8"))
TRANSCENDENTAL = frozenset(_TABLE["transcendental"])
ELEMENTWISE = TRANSCENDENTAL | frozenset(_TABLE["elementwise"])
NAMES = frozenset(_TABLE["names"])
"""Instructions that compute and move nothing: they name a value, or part of one."""
UNTIMED = frozenset(_TABLE["untimed"])
"""Instructions that take no time by themselves, where a program is listed op by op."""
HARMLESS = frozenset(_TABLE["harmless"])
"""Custom calls that compute nothing: marks, casts and allocations."""
CONTROL = ("while", "conditional", "call")
"""Instructions that run others."""
BODIES = ("fusion", "fusion-start", "async-start", "call-start")
"""Instructions that are one kernel, or start one, of which a computation is the body."""
KIND_OF = {opcode: kind for kind, opcodes in _TABLE["kinds"].items() for opcode in opcodes}
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "broadcast")
"""Kinds that move data between devices."""
COPIES = {opcode: what for what, opcodes in _TABLE["copies"].items() for opcode in opcodes}
"""Instructions that move data, by what for."""
RANK: tuple[str, ...] = tuple(_TABLE["rank"])
"""Of what a fusion does, the first of these kinds names it."""
NAMED: dict[str, str] = _TABLE["named"]
"""Kinds, and the pattern of names that say them; the first counts."""
PASSES = frozenset(_TABLE["passes"])
"""Instructions that hand a value on."""
WHOLE = frozenset(_TABLE["whole"])
"""Instructions whose computation is part of them and is not scheduled by itself."""
KEEPS = ELEMENTWISE | frozenset(_TABLE["keeps"])
"""Instructions whose result is split as the operands of as many dims are."""
DTYPES: dict[str, str] = _TABLE["dtypes"]
"""HLO's element types as chips' rates are named; those of 8-bit floats all begin with f8."""
