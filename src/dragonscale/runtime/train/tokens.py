"""Sequences out of token files, in an order that is a pure function of the seed and the step.

A file is a long row of token numbers: `.bin` (plain little-endian `uint16` or `uint32`) or `.npy`. It is mapped into
memory, never loaded. Every file is cut into windows of `seq` tokens (and the one after, for the targets); all windows
of all files are numbered, and every epoch visits them once in an order of its own. Nothing is remembered between steps:
the windows of step 10,000 are computed from the number 10,000, so a restart needs no position but the step, and a host
reads only the rows that its devices hold. Files of documents are made into token files first (`train.documents`);
of tokens of theirs that are not learnt, the complement is kept, and the first of each document is marked. `synthetic`
data needs no file.

>>> [int(shuffled(place, 5, seed=0, epoch=0)) for place in range(5)]
[3, 2, 0, 4, 1]
"""

import glob
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.runtime.train.documents import BEGINS, ENDINGS, dataset_files, kept_tokens

ROUNDS = 6
"""Of the Feistel network; four already make a permutation that cannot be told from a random one (Luby and Rackoff,
1988)."""
_EDGE = 1 << 16
"""Bytes at each end of a file that its fingerprint reads."""


def _mixed(value: Any, key: int) -> Any:
    """64 bits scrambled: the finaliser of splitmix64 (Steele et al., 2014)."""
    mask = numpy.uint64(0xFFFFFFFFFFFFFFFF)
    with numpy.errstate(over="ignore"):
        value = (numpy.asarray(value, numpy.uint64) + numpy.uint64(key)) & mask
        value = (value ^ (value >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return value ^ (value >> numpy.uint64(31))


def shuffled(place: Any, count: int, seed: int, epoch: int) -> Any:
    """Where place (a number or an array) comes in a random order of `count`, without the order being written out.

    A Feistel network permutes the smallest square of a power of two that holds `count`; what falls outside goes round
    again until it falls inside, which keeps it a permutation.
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    mask = numpy.uint64((1 << half) - 1)
    first = seed * 1_000_003 % 2**63
    keys = [int(_mixed(first, 1 + each)) ^ int(_mixed(epoch, 101 + each)) for each in range(ROUNDS)]

    def once(value: Any) -> Any:
        left, right = value >> numpy.uint64(half), value & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right, key) & mask)
        return (left << numpy.uint64(half)) | right

    found = once(numpy.atleast_1d(numpy.asarray(place, numpy.uint64)))
    while (outside := found >= numpy.uint64(count)).any():
        found = numpy.where(outside, once(found), found)
    return found.astype(numpy.int64).reshape(numpy.shape(place))


@dataclass(frozen=True)
class File:
    """One mapped file, its size in bytes when it was opened, and the number of its first window; whether some of its
    tokens are not learnt, and whether it was made of documents, whose beginnings are marked."""

    path: Path
    tokens: Any
    size: int
    first: int
    masked: bool = False
    made: bool = False


def plain_tokens(row: Any) -> Any:
    """Of tokens that are not learnt (complements) or begin a document (marked), the tokens themselves."""
    return numpy.where(row < 0, ~row, row) & ~BEGINS


def document_begins(row: Any) -> Any:
    """The place in a window at which the document of each of its tokens begins.

    >>> document_begins(numpy.array([5, 7 | BEGINS, 8, ~(9 | BEGINS), ~1])).tolist()
    [0, 1, 1, 3, 3]
    """
    marked = (numpy.where(row < 0, ~row, row) & BEGINS) > 0
    return numpy.maximum.accumulate(numpy.where(marked, numpy.arange(row.shape[-1]), 0), -1)


@dataclass(frozen=True)
class Tokens:
    """All windows of all files. `vocab` is what every token must be below."""

    files: tuple[File, ...]
    windows: int
    seq: int
    vocab: int
    seed: int

    @property
    def masked(self) -> bool:
        """Whether some tokens are not learnt."""
        return any(file.masked for file in self.files)

    @property
    def marked(self) -> bool:
        """Whether it is known where documents begin."""
        return all(file.made for file in self.files)

    def rows(self, sequences: Any) -> Any:
        """Windows of `seq + 1` tokens for the sequences of these numbers, counted from the beginning of the run."""
        numbers = numpy.asarray(sequences, numpy.int64)
        epochs, windows = numbers // self.windows, numbers % self.windows
        for epoch in numpy.unique(epochs):
            here = epochs == epoch
            windows[here] = shuffled(windows[here], self.windows, self.seed, int(epoch))
        owners = numpy.searchsorted([file.first for file in self.files], windows, side="right") - 1
        for owner in numpy.unique(owners):
            self._check_whole(self.files[owner])
        pairs = [(self.files[owner], int(window)) for owner, window in zip(owners, windows, strict=True)]
        found = [self._window(file, (window - file.first) * self.seq) for file, window in pairs]
        return numpy.array(found, numpy.int32).reshape(len(numbers), self.seq + 1)

    def _window(self, file: File, start: int) -> Any:
        found = numpy.asarray(file.tokens[start : start + self.seq + 1])
        known = plain_tokens(found) if file.made else found
        if known.min() < 0 or known.max() >= self.vocab:
            wrong = int(numpy.nonzero((known < 0) | (known >= self.vocab))[0][0])
            raise InputError(
                f"{shorten(str(file.path), 200)} has the token {known[wrong]} at place {start + wrong:,}, and the "
                "model "
                f"knows {self.vocab:,} (0 to {self.vocab - 1}); is it made with another vocabulary, or of another type?"
            )
        return found.astype(numpy.int32)

    def _check_whole(self, file: File) -> None:
        """A mapped file that was cut meanwhile would kill the process on the first touch."""
        name = shorten(str(file.path), 200)
        try:
            size = os.stat(file.path).st_size
        except OSError as error:
            raise InputError(f"{name} is gone while it was read: {error.strerror}.") from None
        if size < file.size:
            raise InputError(f"{name} was cut from {file.size:,} to {size:,} bytes while it was read.")

    @property
    def fingerprint(self) -> str:
        """Of the names, sizes and edges of all files: other data gives another."""
        digest = hashlib.sha256()
        for file in self.files:
            with open(file.path, "rb") as opened:
                digest.update(f"{file.path.name}:{file.size}:".encode())
                digest.update(opened.read(_EDGE))
                opened.seek(max(0, file.size - _EDGE))
                digest.update(opened.read(_EDGE))
        return digest.hexdigest()[:16]


SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class SyntheticTokens:
    """Sequences that need no file and can be learnt: of ten tokens nine follow from the one before, and the loss goes
    to a tenth of that of a guess (and the entropy of which it is)."""

    seq: int
    vocab: int
    seed: int
    masked, marked, fingerprint = False, False, SYNTHETIC

    def rows(self, sequences: Any) -> Any:
        each = [numpy.random.default_rng((self.seed, one)).random((self.seq + 1, 2)) for one in sequences]
        made = numpy.array(each).reshape(len(each), self.seq + 1, 2)
        drawn = (made[..., 0] * self.vocab).astype(numpy.int64)
        for at in range(1, self.seq + 1):
            drawn[:, at] = numpy.where(made[:, at, 1] < 0.9, (5 * drawn[:, at - 1] + 1) % self.vocab, drawn[:, at])
        return drawn.astype(numpy.int32)


TokenSource = Tokens | SyntheticTokens


def open_tokens(
    patterns: tuple[str, ...], kind: str, seq: int, vocab: int, seed: int, tokenizer: Callable[[], Any] | None = None
) -> TokenSource:
    """The files that some paths and patterns name, in the order of their names within a pattern; documents are made
    into tokens by the `tokenizer`."""
    if patterns == (SYNTHETIC,):
        return SyntheticTokens(seq, vocab, seed)
    files: list[File] = []
    windows, text = 0, None
    for path in _paths(patterns):
        if path.suffix in ENDINGS and tokenizer is not None:
            text = text or tokenizer()
            path = kept_tokens(path, text, seq)
            tokens, size = _mapped(path, "int32")
            files.append(File(path, tokens, size, windows, bool(len(tokens) and tokens[0] < 0), made=True))
        else:
            tokens, size = _mapped(path, kind or ("uint16" if vocab <= 65536 else "uint32"))
            files.append(File(path, tokens, size, windows))
        windows += max(0, len(tokens) - 1) // seq
    if not windows:
        most = max(len(file.tokens) for file in files)
        raise InputError(
            f"The longest token file has {most:,} tokens, and a sequence needs {seq + 1:,} (seq and the one after)."
        )
    return Tokens(tuple(file for file in files if len(file.tokens) > seq), windows, seq, vocab, seed)


def _paths(patterns: tuple[str, ...]) -> list[Path]:
    found: list[Path] = []
    for pattern in patterns:
        named = sorted(glob.glob(pattern)) if any(c in pattern for c in "*?[") else [pattern]
        if not named or not os.path.isfile(named[0]):
            named = dataset_files(pattern) or named
        if not named:
            raise InputError(f"No token file has a name like {shorten(pattern)}.")
        found += [Path(one) for one in named]
    return found


def _mapped(path: Path, kind: str) -> tuple[Any, int]:
    """A file's tokens, mapped, and its size in bytes."""
    name = shorten(str(path), 200)
    try:
        size = path.stat().st_size
        if path.suffix == ".npy":
            tokens = numpy.load(path, mmap_mode="r", allow_pickle=False)
        elif path.suffix == ".bin":
            width = numpy.dtype(kind).itemsize
            if size % width:
                raise InputError(
                    f"{name} has {size:,} bytes, no whole number of {kind} tokens; it was cut short, or "
                    "holds another type (set tokens under [run])."
                )
            tokens = numpy.memmap(path, numpy.dtype(kind).newbyteorder("<"), "r") if size else numpy.zeros(0, kind)
        else:
            raise InputError(
                f"{name} is no token file; they end in .bin or .npy, and documents in .txt, .jsonl, .parquet or .arrow."
            )
    except OSError as error:
        raise InputError(f"The token file {name} cannot be read: {error.strerror or error}.") from None
    except (ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The token file {name} is not what its ending says: {error}.") from None
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise InputError(
            f"{name} holds an array of {tokens.ndim} dims of {tokens.dtype}; tokens are one row of whole numbers."
        )
    return tokens, size
