"""Recorded traffic: files of requests in the public formats, read as a stream and known by their content.

| format | looks like | from |
|---|---|---|
| azure | `TIMESTAMP,ContextTokens,GeneratedTokens` with dates | Azure LLM inference traces 2023 and 2024 |
| burstgpt | `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, seconds | BurstGPT |
| mooncake | a JSON object a line: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` | Mooncake |
| served | the same with `block_tokens`, `kv_tokens` and what was measured | `dscale run serve --record` |
| plain | `arrival_s,input_tokens,output_tokens` | whoever writes one |

Each may be gzipped. Arrivals count from the first. A row without prompt or output is a call that failed (BurstGPT has
them) and is left out. Files are read twice: once to check and count, once as they are replayed, a line at a time.

Where a record shows that clients waited for their outputs before they asked again, when requests came depends on how
fast the server was: then each follows the one that it followed, after as long.
"""

import csv
import gzip
import heapq
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TextIO

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import MAX_SEQUENCE_TOKENS
from dragonscale.simulation.request import SimulatedRequest
from dragonscale.simulation.traffic import Replay
from dragonscale.tables import check_regular

MOONCAKE_BLOCK = 512
"""Tokens of one hash id (README of the Mooncake traces: "block size 512")."""

LATEST = 1e12
"""Seconds, at most: a time in seconds since 1970 is far below it."""

LONGEST_LINE = 16 << 20
"""Characters of a line, at most: a prompt of a million tokens has a million of them where a server recorded its blocks.
"""

Row = tuple[float, int, int, tuple[int, ...], int]
"""Arrival in seconds, prompt and output tokens, hashes of the prompt's blocks and the tokens of each."""


class MooncakeLine(msgspec.Struct):
    """One line of a Mooncake trace; other keys are not read."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()
    block_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCE_TOKENS)] = MOONCAKE_BLOCK


class RecordedLine(msgspec.Struct):
    """What a line of a server's record has beside its request; -1 where it does not say."""

    timestamp: float = 0.0
    output_length: int = 0
    kv_tokens: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = 0
    ttft_s: float = -1.0
    tpot_s: float = 0.0


class TraceText(str):
    """A trace that is there as text, under the name it is told by; it is read as a file of that name would be.

    >>> one = TraceText.named("mine", "arrival_s,input_tokens,output_tokens\\n0,10,5\\n1,20,5\\n")
    >>> one, read_trace(one).requests
    ('mine', 2)
    """

    text: str

    @classmethod
    def named(cls, name: str, text: str) -> "TraceText":
        """A trace with its name."""
        found = cls(name)
        found.text = text
        return found

    def __str__(self) -> str:
        return self  # a question keeps `str(trace)`, which must not lose the text

    @property
    def name(self) -> str:
        return self[:]


Source = Path | TraceText


def _source(path: Path | str) -> Source:
    return path if isinstance(path, TraceText) else Path(path)


@contextmanager
def _opened(path: Source) -> Iterator[TextIO]:
    """A text file or a gzipped one, whatever its name says."""
    try:
        if isinstance(path, TraceText):
            yield io.StringIO(path.text, newline="")
            return
        check_regular(path, "Trace")
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if zipped
            else path.open(encoding="utf-8-sig", newline="") as file
        ):
            yield file
    except UnicodeDecodeError:
        raise InputError(
            f"The trace {shorten(path.name, 120)} is not text; write it as CSV or JSON lines, gzipped or not."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"The trace {shorten(path.name, 120)} is a gzip file that breaks off or is damaged.") from None
    except OSError as error:
        raise InputError(f"The trace {shorten(path.name, 120)} cannot be read: {error.strerror or error}.") from None
    except csv.Error as error:
        raise InputError(f"The trace {shorten(path.name, 120)} is not CSV: {error}.") from None


def _seconds(stamp: str) -> float:
    """A date and time with any number of decimals, as Azure writes it, in seconds."""
    whole, _, rest = stamp.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    moment = datetime.fromisoformat(whole + rest[len(digits) :])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """The lines of a file, none of which fills the memory."""
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), ""), 1):
        if len(line) > LONGEST_LINE:
            said = f"Line {number} of the trace {shorten(name, 120)} is longer than {LONGEST_LINE >> 20} MiB"
            raise InputError(f"{said}; no request is.")
        yield line


def _table(
    file: TextIO, columns: tuple[str, str, str], time_of: Callable[[str], float], *, name: str
) -> Iterator[tuple[int, Row]]:
    """Rows of a CSV file by the names of three columns, with their line numbers."""
    reader = csv.reader(_lines(file, name))
    header = [column.strip() for column in next(reader)]
    places = [header.index(column) for column in columns]
    for fields in reader:
        if not fields:
            continue
        if len(fields) > len(header) and any(fields[len(header) :]):
            raise InputError(
                f"Line {reader.line_num} of the trace {shorten(name, 120)} has {len(fields):,} columns, and its first "
                f"line names {len(header):,}."
            )
        try:
            stamp, tokens, output = (fields[place] for place in places)
            yield reader.line_num, (time_of(stamp), int(tokens), int(output), (), 0)
        except (ValueError, IndexError):
            raise InputError(
                f"Line {reader.line_num} of the trace {shorten(name, 120)} is {shorten(','.join(fields))}; "
                f"{', '.join(columns)} are wanted as a time and two whole numbers."
            ) from None


def _mooncake(file: TextIO, name: str) -> Iterator[tuple[int, Row]]:
    decode = msgspec.json.Decoder(MooncakeLine).decode
    for number, line in enumerate(_lines(file, name), 1):
        if not line.strip():
            continue
        try:
            read = decode(line)
        except msgspec.MsgspecError as error:
            raise InputError(f"Line {number} of the trace is no Mooncake request: {error}.") from None
        yield number, (read.timestamp / 1e3, read.input_length, read.output_length, read.hash_ids, read.block_tokens)


TABLES: dict[str, tuple[tuple[str, str, str], Callable[[str], float]]] = {
    "azure": (("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _seconds),
    "burstgpt": (("Timestamp", "Request tokens", "Response tokens"), float),
    "plain": (("arrival_s", "input_tokens", "output_tokens"), float),
}


def trace_format(path: Source) -> str:
    """Which of the formats a file has: azure, burstgpt, mooncake or plain."""
    with _opened(path) as file:
        first = file.readline(10_000).strip()
    if first.startswith("{"):
        return "mooncake"
    header = {name.strip().strip('"') for name in first.split(",")}
    for name, (columns, _) in TABLES.items():
        if header.issuperset(columns):
            return name
    if not first:
        raise InputError(f"The trace {shorten(path.name, 120)} is empty.")
    raise InputError(
        f"The trace {shorten(path.name, 120)} begins with {shorten(first)}; wanted are the columns of an Azure, "
        "BurstGPT or plain trace (arrival_s,input_tokens,output_tokens) or the JSON lines of a Mooncake trace."
    )


def _rows(path: Source, kind: str) -> Iterator[SimulatedRequest]:
    """Requests of a file in its order, from time 0."""
    start = before = None
    number, ends = 0, dict[int, int]()
    with _opened(path) as file:
        for line, (time, tokens, output, blocks, size) in (
            _mooncake(file, path.name) if kind == "mooncake" else _table(file, *TABLES[kind], name=path.name)
        ):
            longest = MAX_SEQUENCE_TOKENS
            if not 0 <= tokens <= longest or not 0 <= output <= longest or not -LATEST < time < LATEST:
                wrong = f"has a number that is negative, not finite or larger than any request's ({longest:,} tokens)"
                raise InputError(f"Line {line} of the trace {shorten(path.name, 120)} {wrong}.")
            if before is not None and time < before:
                where = f"Line {line} of the trace {shorten(path.name, 120)}"
                raise InputError(f"{where} arrives before the line above it; sort the trace by time.")
            before = time
            if not tokens or not output:
                continue
            start = time if start is None else start
            session = _session(blocks[: tokens // size], ends, number) if blocks else -1
            since = time - start + 0.0  # -0.0 is written as 0
            yield SimulatedRequest(number, since, tokens, output, blocks, size if blocks else 0, session=session)
            number += 1
    if not number:
        raise InputError(f"The trace {shorten(path.name, 120)} has no request in it that has a prompt and an output.")


def _session(blocks: tuple[int, ...], ends: dict[int, int], number: int) -> int:
    """The session of a request: that of an earlier prompt which it goes on from, by the last whole block of either."""
    found = next((ends[block] for block in reversed(blocks) if block in ends), number)
    if blocks:
        ends[blocks[-1]] = found
    return found


def read_trace(path: Path | str, speed: float = 1.0) -> Replay:
    """Traffic from a file, `speed` times as fast as it was recorded."""
    path = _source(path)
    kind = trace_format(path)
    count = sum(1 for _ in _rows(path, kind))
    return Replay(lambda: _rows(path, kind), count, speed, after=_recorded_order(path))


def _recorded(line: str) -> RecordedLine:
    try:
        return msgspec.json.decode(line, type=RecordedLine)
    except msgspec.MsgspecError:
        return RecordedLine()


def recorded_room(path: Path | str) -> int:
    """Tokens that a replica's cache had room for when a trace was recorded; 0 where it does not say."""
    with _opened(_source(path)) as file:
        return _recorded(file.readline(1 << 20)).kv_tokens


def _recorded_order(path: Source) -> dict[int, tuple[int, float]]:
    """Whom the requests of a server's record followed; nobody where another trace, or an open stream, is read."""
    with _opened(path) as file:
        if _recorded(file.readline(1 << 20)).ttft_s < 0:
            return {}
        file.seek(0)
        lines = [one for one in map(_recorded, filter(str.strip, _lines(file, path.name))) if one.output_length]
    came = [one.timestamp / 1e3 for one in lines]
    spent = (max(one.ttft_s, 0.0) + one.tpot_s * (one.output_length - 1) for one in lines)
    return order_of(came, [at + seconds for at, seconds in zip(came, spent, strict=True)])


FULL = 0.9
"""The part of the most requests at once that must be under way at nearly every arrival, where each follows an
output."""


def order_of(came: list[float], ended: list[float]) -> dict[int, tuple[int, float]]:
    """For each request of a closed loop that followed another: which one ended before it came, the latest that nobody
    else had followed, and how long before. Empty where requests came by themselves: then as many as come are under
    way, and not always about as many.

    >>> order_of([0, 1, 2, 3, 4], [2, 3, 4, 5, 6]), order_of([0, 1, 2, 3, 4], [9, 9, 9, 9, 9])
    ({2: (0, 0), 3: (1, 0), 4: (2, 0)}, {})
    """
    under_way, free, counts = list[tuple[float, int]](), list[int](), list[int]()
    order: dict[int, tuple[int, float]] = {}
    for number, (at, end) in enumerate(zip(came, ended, strict=True)):
        while under_way and under_way[0][0] <= at:
            free.append(heapq.heappop(under_way)[1])
        heapq.heappush(under_way, (end, number))
        counts.append(len(under_way))
        if free:
            order[number] = (before := free.pop()), at - ended[before]
    most = max(counts, default=0)
    steady = counts[counts.index(most) :] if counts else []
    closed = most > 1 and len(steady) > most and sum(one >= FULL * most for one in steady) > FULL * len(steady)
    return order if closed else {}
