"""`--lengths FILE`: the tokens of each example of a dataset, packed into sequences.

A text file has a number a line; JSONL a number a line, or an object whose `length`, `tokens`, `num_tokens` or
`n_tokens` is one, or whose `input_ids` are counted. Examples are packed, the longest first into the first sequence with
room (as TRL's and torchtune's packing do); longer ones than a sequence are cut. Attention within an example of n tokens
costs n²: its cost over all tokens is that of examples of Σn²/Σn tokens, which is what `--documents` is set to.
"""

import bisect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse_length

KEYS = ("length", "tokens", "num_tokens", "n_tokens")
STEP = 256
"""Sequences are a multiple of this, where their length is taken from the longest example."""


def read_lengths(path: str) -> list[int]:
    """The token counts of a file."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(
            f"--lengths {shorten(path)} cannot be read; give a text file or JSONL of token counts."
        ) from error
    found = [_count(line, path, place) for place, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not found:
        raise InputError(f"--lengths {shorten(path)} is empty; write the tokens of an example in each line.")
    return found


def _count(line: str, path: str, place: int) -> int:
    try:
        value: Any = json.loads(line)
    except ValueError:
        value = line
    if isinstance(value, dict):
        named = next((value[key] for key in KEYS if key in value), value.get("input_ids"))
        value = len(named) if isinstance(named, list) else named
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not 1 <= value <= 10**9:
        words = "write a number of tokens, or an object with length, tokens or input_ids"
        raise InputError(f"Line {place} of --lengths {shorten(path)} is {shorten(line)}; {words}.")
    return int(value)


def packed_sequences(lengths: list[int], seq: int) -> int:
    """Sequences that examples fill, the longest first, each into the fullest that has room.

    >>> packed_sequences([600, 500, 400, 300, 200], 1024)
    2
    """
    room: list[int] = []  # of each sequence, sorted
    for length in sorted((min(one, seq) for one in lengths), reverse=True):
        place = bisect.bisect_left(room, length)
        left = (room.pop(place) if place < len(room) else seq) - length
        bisect.insort(room, left)
    return len(room)


def with_lengths(question: Any) -> tuple[Any, list[str]]:
    """A question with what a dataset's lengths say of its documents, and where they are not given, of its sequences and
    the tokens of a run: one epoch of whole sequences."""
    if not question.lengths.strip():
        return question, []
    if question.documents.strip():
        raise InputError("--lengths has the lengths of documents, and --documents their mean; leave out either.")
    lengths = read_lengths(question.lengths)
    longest = -(-max(lengths) // STEP) * STEP
    seq = parse_length(question.seq, "--seq")[0] if question.seq.strip() else longest
    cut = [min(one, seq) for one in lengths]
    tokens, sequences = sum(cut), packed_sequences(lengths, seq)
    mean = round(sum(one * one for one in cut) / tokens)
    epoch = question.tokens.strip() or str(sequences * seq)
    said = f"{len(lengths):,} examples of {tokens:,} tokens, packed into {sequences:,} sequences of {seq:,}"
    padded = len(lengths) / sequences
    notes = [
        f"{said} ({tokens / (sequences * seq):.0%} full); one example a sequence would be {padded:.1f} times as many."
    ]
    if shortened := sum(one > seq for one in lengths):
        notes.append(f"{shortened:,} examples are longer than --seq {seq:,} and are cut.")
    return replace(question, lengths="", documents=str(mean), seq=str(seq), tokens=epoch), notes
