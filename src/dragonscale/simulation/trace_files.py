"""Recorded traffic: files of requests in the public formats, read as a stream and recognised by their content.

| format | looks like | from |
|---|---|---|
| azure | `TIMESTAMP,ContextTokens,GeneratedTokens` with dates | Azure LLM inference traces 2023 and 2024 |
| burstgpt | `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, seconds | BurstGPT |
| mooncake | a JSON object a line: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` | Mooncake |
| served | the same with `block_tokens`, `kv_tokens` and measured latencies | `dscale run serve --record` |
| plain | `arrival_s,input_tokens,output_tokens` | anyone |
| benchmark | JSON of a benchmark of a server, or conversations | `benchmark_files` |

Each may be gzipped. Arrivals count from the first. A row without prompt or output is a failed call (BurstGPT has them)
and is left out. Files are read twice: once to check and count, once as they are replayed, a line at a time.

If a record shows that clients waited for their outputs before they asked again, arrivals depended on how fast the
server was: then each request follows the one that it followed in the record, after as long.
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
from dragonscale.simulation.benchmark_files import HEAD, BenchmarkFile, may_be_benchmark, parse_benchmark
from dragonscale.simulation.request import SimulatedRequest
from dragonscale.simulation.traffic import Replay
from dragonscale.tables import check_regular

MOONCAKE_BLOCK = 512
"""Tokens of one hash id (README of the Mooncake traces: "block size 512")."""

MAX_SECONDS = 1e12
"""Largest time in seconds; one since 1970 is far below it."""

MAX_LINE_LENGTH = 16 << 20
"""Most characters of a line: the recorded block names of a prompt of a million tokens take about a million."""

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
    """What a line of a server's record has besides its request; -1 if it has no TTFT."""

    timestamp: float = 0.0
    output_length: int = 0
    kv_tokens: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = 0
    ttft_s: float = -1.0
    tpot_s: float = 0.0


class TraceText(str):
    """A trace given as text, with the name that messages show; it is read as a file of that name would be.

    >>> one = TraceText.named("mine", "arrival_s,input_tokens,output_tokens\\n0,10,5\\n1,20,5\\n")
    >>> one, read_trace(one).requests
    ('mine', 2)
    """

    text: str

    @classmethod
    def named(cls, name: str, text: str) -> "TraceText":
        """A trace with its name."""
        trace = cls(name)
        trace.text = text
        return trace

    def __str__(self) -> str:
        return self  # a question stores `str(trace)`, which must keep the text

    @property
    def name(self) -> str:
        return self[:]


Source = Path | TraceText


def _source(path: Path | str) -> Source:
    """A path, or a trace that is given as text."""
    if isinstance(path, TraceText):
        return path
    return Path(path)


@contextmanager
def _opened(path: Source) -> Iterator[TextIO]:
    """Open a text file or a gzipped one, recognised by its first bytes."""
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
    return moment.timestamp() + float(f"0.{digits}0")  # a zero is added for stamps without decimals


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """The lines of a file; one that would fill the memory is refused."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_LENGTH + 1), ""), 1):
        if len(line) > MAX_LINE_LENGTH:
            where = f"Line {number} of the trace {shorten(name, 120)} is longer than {MAX_LINE_LENGTH >> 20} MiB"
            raise InputError(f"{where}; no request is.")
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
            stamp, tokens, output = (fields[index] for index in places)
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


MAX_DOCUMENT = 2 << 30
"""Characters of a file that is read as a whole."""


def read_benchmark(path: Path | str) -> BenchmarkFile | None:
    """The requests of a file that a benchmark wrote, or of conversations; None for a file of another kind."""
    source = _source(path)
    with _opened(source) as file:
        if not may_be_benchmark(file.readline(HEAD)):
            return None
        file.seek(0)
        text = file.read(MAX_DOCUMENT + 1)
    if len(text) > MAX_DOCUMENT:
        raise InputError(f"The file {shorten(source.name, 120)} is larger than {MAX_DOCUMENT >> 30} GiB.")
    return parse_benchmark(text, f"The file {shorten(source.name, 120)}")


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
        "BurstGPT or plain trace (arrival_s,input_tokens,output_tokens), the JSON lines of a Mooncake trace, or a file "
        "of vllm bench, GuideLLM, AIPerf, inference-perf or ShareGPT."
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
            if not 0 <= tokens <= longest or not 0 <= output <= longest or not -MAX_SECONDS < time < MAX_SECONDS:
                wrong = f"has a number that is negative, not finite or larger than any request's ({longest:,} tokens)"
                raise InputError(f"Line {line} of the trace {shorten(path.name, 120)} {wrong}.")
            if before is not None and time < before:
                where = f"Line {line} of the trace {shorten(path.name, 120)}"
                raise InputError(f"{where} arrives before the line above it; sort the trace by time.")
            before = time
            if not tokens or not output:
                continue
            if start is None:
                start = time
            session = -1
            if blocks:
                session = _session(blocks[: tokens // size], ends, number)
            else:
                size = 0
            since = time - start + 0.0  # turns -0.0 into 0.0
            yield SimulatedRequest(number, since, tokens, output, blocks, size, session=session)
            number += 1
    if not number:
        raise InputError(f"The trace {shorten(path.name, 120)} has no request in it that has a prompt and an output.")


def _session(blocks: tuple[int, ...], ends: dict[int, int], number: int) -> int:
    """The session of a request: that of the earlier prompt which it continues, by the last whole block of either."""
    session = next((ends[block] for block in reversed(blocks) if block in ends), number)
    if blocks:
        ends[blocks[-1]] = session
    return session


def read_trace(path: Path | str, speed: float = 1.0, times: Iterator[float] | None = None) -> Replay:
    """Traffic from a file, `speed` times as fast as it was recorded. A file of lengths alone takes its arrivals from
    `times`, in seconds, which others do without."""
    path = _source(path)
    if benchmark := read_benchmark(path):
        requests = tuple(_benchmark_requests(benchmark, times, path.name))
        return Replay(lambda: iter(requests), len(requests), speed, note=benchmark.note)
    if times is not None:
        raise InputError("A trace says when requests come; leave --rate and --clients out, or use --speed.")
    kind = trace_format(path)
    count = sum(1 for _ in _rows(path, kind))
    return Replay(lambda: _rows(path, kind), count, speed, after=_recorded_order(path))


def _benchmark_requests(
    benchmark: BenchmarkFile, times: Iterator[float] | None, name: str
) -> Iterator[SimulatedRequest]:
    """The requests of a benchmark, from time 0."""
    arrivals = [request.arrival_s for request in benchmark.requests]
    if benchmark.has_times and times is not None:
        raise InputError("A trace says when requests come; leave --rate and --clients out, or use --speed.")
    if not benchmark.has_times and times is None:
        raise InputError(
            f"The file {shorten(name, 120)} ({benchmark.title}) has lengths of requests and not when they came: "
            "`dscale simulate MODEL --on SLICE --trace FILE --rate 4/s` sends them at a rate."
        )
    start = arrivals[0] or 0.0
    for number, request in enumerate(benchmark.requests):
        since = next(times) if times is not None else (request.arrival_s or 0.0) - start
        if not 0 <= since < MAX_SECONDS or max(request[1:3]) > MAX_SEQUENCE_TOKENS:
            raise InputError(f"Request {number + 1} of {shorten(name, 120)} has a length or a time that none has.")
        yield SimulatedRequest(number, since, request.input_tokens, request.output_tokens)


def _recorded(line: str) -> RecordedLine:
    try:
        return msgspec.json.decode(line, type=RecordedLine)
    except msgspec.MsgspecError:
        return RecordedLine()


def recorded_room(path: Path | str) -> int:
    """Tokens of cache that a replica had when a trace was recorded; 0 if the trace does not say."""
    with _opened(_source(path)) as file:
        return _recorded(file.readline(1 << 20)).kv_tokens


def _recorded_order(path: Source) -> dict[int, tuple[int, float]]:
    """For each request of a server's record the one that it followed, and how long after; empty for other traces and
    open streams."""
    with _opened(path) as file:
        if _recorded(file.readline(1 << 20)).ttft_s < 0:
            return {}
        file.seek(0)
        lines = [line for line in map(_recorded, filter(str.strip, _lines(file, path.name))) if line.output_length]
    came = [line.timestamp / 1e3 for line in lines]
    spent = (max(line.ttft_s, 0.0) + line.tpot_s * (line.output_length - 1) for line in lines)
    return order_of(came, [at + seconds for at, seconds in zip(came, spent, strict=True)])


FULL_SHARE = 0.9
"""In a closed loop at least this fraction of the most concurrent requests runs at nearly every arrival."""


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
        # clients whose request has ended are free to send the next
        while under_way and under_way[0][0] <= at:
            free.append(heapq.heappop(under_way)[1])
        heapq.heappush(under_way, (end, number))
        counts.append(len(under_way))
        if free:
            order[number] = (before := free.pop()), at - ended[before]
    # Closed if, once all clients have started, nearly every arrival finds nearly all of them busy.
    peak = max(counts, default=0)
    steady = counts[counts.index(peak) :] if counts else []
    closed = (
        peak > 1
        and len(steady) > peak
        and sum(count >= FULL_SHARE * peak for count in steady) > FULL_SHARE * len(steady)
    )
    return order if closed else {}
