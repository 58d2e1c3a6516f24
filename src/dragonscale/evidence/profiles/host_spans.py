"""What the host was doing: spans on its threads, nested, and from which of them a kernel was launched.

A framework's profiler writes down operators, modules, annotations and calls of the driver as spans of time on a thread;
that one lies inside of another is nowhere said but in their times. Sorted by start, longest first, one walk with a
stack finds each span's parent. The ways from the outermost span to an inner one are few, however many spans there are,
so each way is kept once (a `path`) and the words made of it (the chain of operators, the modules) are made once.
"""

import re
import struct
from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np

from dragonscale.evidence.profiles.intervals import looked_up

MOST_HOST_SPANS = 10_000_000
"""Spans kept of the host; a recording with more of them keeps those that come first in the file."""
_DEEPEST = 128
_MOST_PATHS = 1_000_000
_LONGEST_NAME = 2000
_MOST_TEXT = 256 << 20
_LONG, _SHORT = ("start", "end", "external", "sequence"), ("name", "thread", "shapes", "kind", "backward")
_SPAN = np.dtype(list(zip((*_LONG, *_SHORT), (*["<i8"] * 4, *["<i4"] * 3, *["i1"] * 2), strict=True)))
_PACK = struct.Struct("<qqqqiiibb").pack
"""A span as it is collected."""
_FORWARD = re.compile(r"[#\s]*(forward|fwd)( pass)?[#\s]*", re.IGNORECASE)


class SpanKind(IntEnum):
    """In the order in which spans of exactly the same time lie inside of each other."""

    MODULE = 0
    FRAME = 1
    ANNOTATION = 2
    OPERATOR = 3
    CALL = 4


class Names:
    """Each text once, by number. The texts of one recording stay within a bound: what comes after has no name."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._left = _MOST_TEXT

    def number(self, text: object) -> int:
        """The number of a text."""
        if type(text) is str and (found := self._numbers.get(text)) is not None:
            return found
        name = str(text)[:_LONGEST_NAME] if self._left > 0 else "(name left out)"
        self._left -= len(name)
        if name not in self._numbers:
            self._numbers[name] = len(self.texts)
            self.texts.append(name)
        if isinstance(text, str) and len(text) > _LONGEST_NAME and self._left > 0:
            self._left -= len(text)
            self._numbers[text] = self._numbers[name]  # found at once the next time
        return self._numbers[name]


class HostSpans:
    """Columns of spans; after `nest`, each with its parent and its path."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.dropped, self.nested, self._packed = 0, False, bytearray()
        self._paths: dict[tuple[int, int, int], int] = {}
        self.path_parent, self.path_name, self.path_kind, self._depth = [-1], [-1], [-1], [0]
        self._words: dict[tuple[int, int], dict[str, str]] = {}

    def add(
        self,
        kind: int,
        thread: int,
        name: int,
        start: int,
        end: int,
        external: int = -1,
        sequence: int = -1,
        shapes: int = -1,
        backward: bool = False,
    ) -> None:
        """A span. `external` is the number under which kernels refer to it (for a call: the correlation), `sequence`
        what a forward operator and its backward share."""
        if len(self) >= MOST_HOST_SPANS:
            self.dropped += 1
            return
        self._packed += _PACK(start, end, external, sequence, name, thread, shapes, kind, backward)

    def __len__(self) -> int:
        return len(self.start) if self.nested else len(self._packed) // _SPAN.itemsize

    def nest(self) -> None:
        """Sort, and find every span's parent and path."""
        spans = np.frombuffer(self._packed, _SPAN)
        order = np.lexsort((spans["kind"], -spans["end"], spans["start"], spans["thread"]))
        long, short = ([np.ascontiguousarray(spans[each][order]) for each in names] for names in (_LONG, _SHORT))
        self.start, self.end, self.external, self.sequence = long
        self.name, self.thread, self.shapes, self.kind, self.backward = short
        # what was collected is not needed any more, and large
        self.nested, spans, order, self._packed = True, None, None, bytearray()
        parents, paths = array("i"), array("i")
        stack: list[tuple[int, int, int]] = []  # end, span, path
        thread = None
        rows = in_parts(self.start, self.end, self.name, self.thread, self.kind)
        for span, (start, end, name, on, kind) in enumerate(rows):
            if on != thread:
                stack, thread = [], on
            # ends are rounded: what begins where another ends is not inside of it
            while stack and stack[-1][0] <= start + 1:
                stack.pop()
            parent, path = stack[-1][1:] if stack else (-1, 0)
            if kind != SpanKind.CALL:
                path = self._path(path, name, kind)
            parents.append(parent)
            paths.append(path)
            if len(stack) < 4 * _DEEPEST:  # deeper than any program nests: the spans are not what they say
                stack.append((end, span, path))
        self.parent = np.frombuffer(parents, dtype="i") if len(parents) else np.zeros(0, "i")
        self.path = np.frombuffer(paths, dtype="i") if len(paths) else np.zeros(0, "i")

    def _path(self, parent: int, name: int, kind: int) -> int:
        key = (parent, name, kind)
        found = self._paths.get(key)
        if found is None:
            if self._depth[parent] >= _DEEPEST or len(self.path_parent) >= _MOST_PATHS:
                return parent
            found = self._paths[key] = len(self.path_parent)
            self.path_parent.append(parent)
            self.path_name.append(name)
            self.path_kind.append(kind)
            self._depth.append(self._depth[parent] + 1)
        return found

    # --- words

    def _along(self, path: int, *kinds: SpanKind) -> list[str]:
        """Names of some kinds along a path, outermost first."""
        names: list[str] = []
        while path > 0:
            if self.path_kind[path] in kinds:
                names.append(self.names.texts[self.path_name[path]])
            path = self.path_parent[path]
        return names[::-1]

    def _scope(self, own: int, forward: int) -> str:
        """The modules and annotations along a path, outermost first; of a backward operator what is around itself, then
        what was around the forward operator, less the word for forward."""
        if forward < 0 or self._along(own, SpanKind.MODULE):  # modules that run again: activations are recomputed
            return joined(self._places(own))
        before = [name for name in self._places(forward) if not _FORWARD.fullmatch(name)]
        return joined([*(name for name in self._places(own) if name not in before), *before])

    def _places(self, path: int) -> list[str]:
        names = self._along(path, SpanKind.MODULE, SpanKind.ANNOTATION)
        return [name.removeprefix("nn.Module: ") for name in names if not name.startswith("ProfilerStep")]

    def words(self, path: int, before: int) -> dict[str, Any]:
        """Scope, source and caller of what was launched at a path: the innermost line of the user's own program, and
        the operators. `before` is the path of the forward operator of what runs backward, -1 where there is none."""
        if (path, before) not in self._words:
            sources = self._along(path, SpanKind.FRAME) or self._along(before, SpanKind.FRAME)
            self._words[path, before] = {
                "scope": self._scope(path, before),
                "source": "".join(sources[-1:]),
                "caller": joined(self._along(path, SpanKind.OPERATOR)),
            }
        return self._words[path, before]

    # --- joins

    def find(self, kind: SpanKind, numbers: np.ndarray) -> np.ndarray:
        """The span of a kind by each of some numbers: a call of the driver by its correlation, an operator by the
        number under which kernels refer to it; -1 where there is none."""
        rows = np.flatnonzero((self.kind == kind) & (self.external > 0))
        rows = rows[np.argsort(self.external[rows], kind="stable")]
        return looked_up(self.external[rows], rows, numbers)

    def forward_paths(self) -> dict[int, int]:
        """The path of the innermost forward operator of each sequence number: of those that share one, the one that
        began last made the graph's node."""
        rows = np.flatnonzero((self.sequence >= 0) & (self.backward == 0) & (self.kind == SpanKind.OPERATOR))
        rows = rows[np.argsort(self.start[rows], kind="stable")]
        return dict(zip(self.sequence[rows].tolist(), self.path[rows].tolist(), strict=True))


def in_parts(*columns: np.ndarray) -> Iterator[tuple[int, ...]]:
    """The rows of columns as plain numbers, which are many times as large: made a part at a time."""
    for first in range(0, len(columns[0]), 1 << 16):
        yield from zip(*(each[first : first + (1 << 16)].tolist() for each in columns), strict=True)


def joined(words: list[str], most: int = 24) -> str:
    """Words by `/`; of very many the outermost and the innermost."""
    return "/".join(words if len(words) <= most else [*words[: most // 3], "…", *words[-(most - most // 3) :]])
