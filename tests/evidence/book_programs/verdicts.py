"""What the compilers made of the cases, held against what was predicted.

A verdict is one of five:

- `as predicted`: the same collectives, over the same mesh axes, with the same bytes;
- `another way`: exactly those of another way that the algebra lists; `why` names it;
- `padded`: those predicted, but scattered blocks were filled up to whole tiles, and a small send puts them right;
- `reduced whole`: those predicted, but in place of a scatter stands an AllReduce, which sends twice as much, and a
  slice;
- `differs`: anything else.
"""

import csv
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dragonscale.course.closed_forms.schemes import SCHEMES
from dragonscale.errors import InputError
from dragonscale.evidence.verify.compiling import PYTHON
from dragonscale.evidence.xla import gpu_target, tpu_target
from dragonscale.evidence.xla.compiled import Compiled, Exchange, read_compiled
from dragonscale.physics.notation import subscript
from dragonscale.plan.ledger import LedgerLine
from tests.evidence.book_programs.cases import Case, case_named
from tests.evidence.book_programs.predictions import Way, ways
from tests.sharding.wording import BOOK_NAMES

PADDING = 0.03
"""What filling up to whole tiles may add to the bytes of a scatter."""
Sent = Counter[tuple[str, tuple[str, ...], int]]
"""How often a chip sends what: kind of collective, mesh axes, bytes."""


@dataclass(frozen=True)
class Judged:
    """One case on one slice."""

    case: Case
    piece: str
    predicted: Way
    compiled: Compiled
    verdict: str
    why: str

    @property
    def predicted_bytes(self) -> float:
        """Bytes that each chip should send."""
        return sum(move.total("wire_bytes") for move in self.predicted.moves)


def compile_cases(kind: str, names: Sequence[str] = (), timeout: float = 900.0) -> list[tuple[Case, str, str]]:
    """Cases on all their slices of `gpu` or `tpu`, compiled in a process of its own: case, slice, HLO text."""
    environment = gpu_target.ENVIRONMENT if kind == "gpu" else tpu_target.ENVIRONMENT
    command = [os.environ.get(PYTHON) or sys.executable, "-m", "tests.evidence.book_programs.worker", kind, *names]
    for name in names:
        case_named(name)
    try:
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"XLA was still compiling after {timeout:.0f} s; give it fewer cases.") from None
    if done.returncode:
        raise InputError(f"The compiling process failed (exit {done.returncode}): {done.stderr.strip()[-1500:]}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [(case_named(each["case"]), each["slice"], each["hlo"]) for each in found]


def judge(case: Case, piece: str, text: str) -> Judged:
    """The verdict on one compiled case."""
    compiled = read_compiled(text, None, case.slices[piece])
    listed = ways(case, piece)
    seen = _seen(compiled.collectives)
    for place, way in enumerate(listed):
        if _planned(way.moves) == seen:
            if place == 0:
                return Judged(case, piece, way, compiled, "as predicted", "")
            return Judged(case, piece, listed[0], compiled, "another way", way.words)
    for verdict, rule in (("padded", _padding), ("reduced whole", _reduced_whole)):
        if why := rule(listed[0].moves, compiled.collectives):
            return Judged(case, piece, listed[0], compiled, verdict, why)
    return Judged(case, piece, listed[0], compiled, "differs", "")


def _planned(moves: Iterable[LedgerLine]) -> Sent:
    found: Sent = Counter()
    for move in moves:
        found[move.kind, tuple(sorted(move.axes)), round(move.wire_bytes)] += move.times
    return found


def _seen(exchanges: Iterable[Exchange]) -> Sent:
    found: Sent = Counter()
    for each in exchanges:
        found[each.kind, tuple(sorted(each.axes)), round(each.wire_bytes)] += each.times
    return found


def _padding(moves: Sequence[LedgerLine], exchanges: Sequence[Exchange]) -> str:
    """Whether both sides are alike but for sends that mend padding and the little that it adds; in words."""
    mending = [each for each in exchanges if each.padding]
    planned = sorted(_planned(moves).elements())
    seen = sorted(_seen(each for each in exchanges if not each.padding).elements())
    if not mending or [each[:2] for each in planned] != [each[:2] for each in seen]:
        return ""
    if any(not 0 <= found / wanted - 1 < PADDING for (*_, wanted), (*_, found) in zip(planned, seen, strict=True)):
        return ""
    sent = sum(each.wire_bytes * each.times for each in mending)
    return f"blocks are filled up to whole tiles, and sends of {sent / 1e6:.1f} MB put them right"


def _reduced_whole(moves: Sequence[LedgerLine], exchanges: Sequence[Exchange]) -> str:
    """Whether both sides are alike but for scatters that are AllReduces, with twice the bytes; in words."""
    missing, more = _planned(moves) - _seen(exchanges), _seen(exchanges) - _planned(moves)
    doubled = Counter({("all_reduce", axes, 2 * sent): times for (_, axes, sent), times in missing.items()})
    if any(kind != "reduce_scatter" for kind, *_ in missing) or doubled != more:
        return ""
    return f"{in_words(more)} where {in_words(missing)} would do"


def in_words(sent: Sent) -> str:
    """Collectives in the book's words.

    >>> in_words(Counter({("all_gather", ("X",), 8): 2, ("reduce_scatter", ("Y",), 4): 1}))
    '2 AllGather_X, ReduceScatter_Y'
    """
    counts: Counter[str] = Counter()
    for (kind, axes, _), times in sent.items():
        counts[f"{BOOK_NAMES[kind]}{subscript(axes)}"] += times
    return ", ".join(f"{times} {name}" if times > 1 else name for name, times in sorted(counts.items())) or "none"


COLUMNS = (
    "case",
    "program",
    "slice",
    "mesh",
    "predicted",
    "compiled",
    "predicted_bytes",
    "compiled_bytes",
    "verdict",
    "why",
)


def table(judged: Iterable[Judged]) -> str:
    """The verdicts as CSV: bytes are those that each chip sends."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in judged:
        mesh = " ".join(f"{axis}={size}" for axis, size in each.case.slices[each.piece].items())
        said = (in_words(_planned(each.predicted.moves)), in_words(_seen(each.compiled.collectives)))
        sent = (f"{each.predicted_bytes:.0f}", f"{each.compiled.wire_bytes():.0f}")
        program = "; ".join(SCHEMES.get(part, part) for part in each.case.texts)
        writer.writerow([each.case.name, program, each.piece, mesh, *said, *sent, each.verdict, each.why])
    return text.getvalue()
