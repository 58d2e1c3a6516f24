"""Files with something wrong in them: as text, as bytes, as JSON, as a database."""

import gzip
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Spoiler = Callable[[bytes, random.Random], bytes]

_WRONG = [
    "nan",
    "inf",
    "-1",
    "0",
    "1e308",
    "1e-320",
    "9" * 23,
    '"',
    "[]",
    "{}",
    "true",
    "\x00",
    "\x1b[31m",
    "½",
    "",
    "-0.0",
    '""',
    "1e8",
    '"0GB/s"',
]
_EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    0.5,
    -0.0,
    1e308,
    1e-320,
    10**23,
    2**63,
    -(2**63),
    float("nan"),
    float("inf"),
    "",
    " ",
    "nan",
    "x" * 3000,
    "\x1b[31mred",
    "\u202e",
    "\udcff",
    "$(touch X)",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [1] * 50,
]


def spoil(content: bytes, dice: random.Random) -> bytes:
    """A text with one thing wrong with it: a line lost, doubled or cut, a value replaced, bytes flipped."""
    lines = content.splitlines(keepends=True) or [b""]
    place, way = dice.randrange(len(lines)), dice.randrange(8)
    if way == 0:
        return b"".join(lines[:place] + lines[place + 1 :])
    if way == 1:
        return b"".join([*lines[: place + 1], *lines[place:]])
    if way == 2:
        return content[: dice.randrange(len(content) + 1)]
    if way == 3:
        return spoil_bytes(content, dice)
    signs = [sign for sign in (b"=", b",", b":", b" ") if sign in lines[place]]
    if not signs:
        return b"".join(lines[::-1])
    wrong = dice.choice(_WRONG).encode()
    sign = dice.choice(signs)
    parts = lines[place].rstrip(b"\r\n").split(sign)
    parts[dice.randrange(len(parts))] = wrong
    return b"".join([*lines[:place], sign.join(parts) + b"\n", *lines[place + 1 :]])


def spoil_bytes(content: bytes, dice: random.Random) -> bytes:
    """Bytes flipped, lost, doubled, moved, or numbers of four and eight bytes at the edges of what they hold."""
    found = bytearray(content or b"0")
    place, way = dice.randrange(len(found)), dice.randrange(7)
    span = min(dice.choice([1, 1, 2, 4, 8, 64, 1000]), len(found) - place)
    if way == 0:
        found[place] = dice.randrange(256)
    elif way == 1:
        found[place] ^= 1 << dice.randrange(8)
    elif way == 2:
        del found[place : place + span]
    elif way == 3:
        found[place:place] = found[place : place + span]
    elif way == 4:
        width = dice.choice([1, 2, 4, 8])
        edge = dice.choice(_EDGES) & ((1 << 8 * width) - 1)
        found[place : place + width] = edge.to_bytes(width, dice.choice(["little", "big"]))  # pyright: ignore[reportArgumentType]
    elif way == 5:
        del found[place:]
    else:
        other = dice.randrange(len(found))
        found[place : place + span] = found[other : other + span]
    return bytes(found)


def spoil_json(content: bytes, dice: random.Random) -> bytes:
    """JSON with a value of another kind, an entry lost, doubled or under another name."""
    root = json.loads(content)
    nodes: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in list(items):
            nodes.append((value, key))
            walk(inner)

    walk(root)
    if not nodes or dice.random() < 0.02:
        return json.dumps(dice.choice(_VALUES)).encode()
    holder, key = dice.choice(nodes)
    way = dice.randrange(6)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[dice.choice(["", "x", "\x1b[1m", f"{key}{key}", str(key).upper()])] = holder.pop(key)
    elif way == 2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif way == 3:
        other, there = dice.choice(nodes)
        holder[key] = json.loads(json.dumps(other[there]))
    else:
        holder[key] = dice.choice(_VALUES)
    return json.dumps(root).encode()


def spoil_jsonl(content: bytes, dice: random.Random) -> bytes:
    """Lines of JSON, one of them spoilt."""
    lines = content.splitlines()
    place = dice.randrange(len(lines))
    lines[place] = spoil_json(lines[place], dice)
    return b"\n".join(lines) + b"\n"


def spoil_sqlite(content: bytes, dice: random.Random) -> bytes:
    """A database with values of other kinds, without a table or a column."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spoilt.sqlite"
        path.write_bytes(content)
        database = sqlite3.connect(path)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(dice.choice([1, 1, 2, 4])):
            table = dice.choice(tables)
            column = dice.choice([row[1] for row in database.execute(f"PRAGMA table_info({table})")] or ["id"])
            value = dice.choice([0, -1, 1, 2**62, -(2**62), 1.5, "x", "", b"\xff\x00", "\x1b[31m", 1e308, 99])
            way = dice.randrange(6)
            words, given = {
                0: (f"DROP TABLE {table}", ()),
                1: (f"ALTER TABLE {table} RENAME COLUMN {column} TO other", ()),
                2: (f"DELETE FROM {table}", ()),
                3: (f"INSERT INTO {table} SELECT * FROM {table}", ()),
            }.get(way, (f"UPDATE OR IGNORE {table} SET {column} = ?", (value,)))
            try:
                database.execute(words, given)
            except sqlite3.Error:
                continue
            tables = [name for name in tables if way or name != table] or tables
        database.commit()
        database.close()
        return path.read_bytes()


def packed(inner: Spoiler) -> Spoiler:
    """What is inside a gzip, spoilt by a way; or now and then the gzip itself."""

    def spoil_packed(content: bytes, dice: random.Random) -> bytes:
        if dice.random() < 0.1:
            return spoil_bytes(content, dice)
        return gzip.compress(inner(gzip.decompress(content), dice), 1)

    return spoil_packed
