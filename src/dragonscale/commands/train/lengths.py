"""`--lengths FILE`: the tokens of each example of a dataset, packed into sequences.

A text file has a number a line; JSONL a number a line, or an object whose `length`, `tokens`, `num_tokens` or
`n_tokens` is one, or whose `input_ids` are counted. Examples are packed, the longest first into the first sequence with
room (as TRL's and torchtune's packing do); longer ones than a sequence are cut. Attention within an example of n tokens
costs n²: its cost over all tokens is that of examples of Σn²/Σn tokens, which is what `--documents` is set to.
"""

import bisect
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.commands.questions.flag import written
from dragonscale.errors import InputError, shorten
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.units import parse_length
from dragonscale.tables import check_regular

KEYS = ("length", "tokens", "num_tokens", "n_tokens")
MOST_EPOCHS = 10_000
MAX_BYTES, MAX_LINE, MAX_EXAMPLES = 16 << 30, 64 << 20, 10_000_000
"""A file of `input_ids` may be large, since it is read line by line; a line of ten million tokens is no example."""
SHORTEST, WHOLE = 2048, 0.95
"""Sequences where nobody says their tokens: a power of two from this on that holds so many of the examples whole."""


def read_lengths(path: str) -> list[int]:
    """The token counts of a file."""
    shown = f"--lengths {shorten(path)}"
    lengths: list[int] = []
    try:
        file = Path(path).expanduser()
        if check_regular(file, "--lengths").st_size > MAX_BYTES:
            raise InputError(f"{shown} is larger than {MAX_BYTES >> 30} GiB; give the token counts of fewer examples.")
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE + 1), ""), 1):
                if len(line) > MAX_LINE:
                    raise InputError(f"Line {number} of {shown} is longer than {MAX_LINE >> 20} MiB.")
                if line.strip():
                    lengths.append(_count(line.strip(), path, number))
                if len(lengths) > MAX_EXAMPLES:
                    raise InputError(f"{shown} has more than {MAX_EXAMPLES:,} examples; give a sample of them.")
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{shown} cannot be read; give a text file or JSONL of token counts.") from error
    if not lengths:
        raise InputError(f"{shown} is empty; write the tokens of an example in each line.")
    return lengths


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


def usual_sequence(lengths: list[int], context: int | None) -> int:
    """Tokens of a sequence that holds most examples whole, as far as the model has positions (None: any number).

    >>> usual_sequence([300] * 96 + [9000] * 4, 8192), usual_sequence([3000] * 9 + [20_000], 8192)
    (2048, 8192)
    """
    held = sorted(lengths)[math.ceil(WHOLE * len(lengths)) - 1]
    size = max(SHORTEST, 1 << (held - 1).bit_length())
    return min(size, context or size)


def with_lengths(question: Any) -> tuple[Any, list[str]]:
    """A question with what a dataset's lengths say of its documents, and where they are not given, of its sequences and
    the tokens of a run: `--epochs` (one without a word) of whole sequences."""
    if not question.lengths.strip():
        if question.epochs is not None:
            raise InputError("--epochs counts passes over a dataset: give its --lengths FILE too, or --tokens instead.")
        return question, []
    if question.documents.strip():
        raise InputError("--lengths has the lengths of documents, and --documents their mean; leave out either.")
    _check_epochs(question)
    lengths, notes = read_lengths(question.lengths), list[str]()
    if question.seq.strip():
        seq = parse_length(question.seq, "--seq")[0]
    else:
        named = with_assumed(question.model, question.assume, question.family) if written(question.model) else None
        seq = usual_sequence(lengths, load_model(named).context if named is not None else None)
        held = sum(one <= seq for one in lengths) / len(lengths)
        notes.append(f"--seq {seq} taken: it holds {held:.0%} of the examples whole.")
    cut = [min(one, seq) for one in lengths]
    tokens, sequences = sum(cut), packed_sequences(lengths, seq)
    weighted = round(sum(one * one for one in cut) / tokens)
    run = question.tokens.strip() or str(round((question.epochs or 1) * sequences * seq))
    said = f"{len(lengths):,} examples of {tokens:,} tokens, packed into {sequences:,} sequences of {seq:,}"
    means = f"the mean is {tokens / len(lengths):,.0f} tokens, {weighted:,} weighted by length as attention counts it"
    full, padded = tokens / (sequences * seq), len(lengths) / sequences
    notes.append(f"{said} ({full:.0%} full); one example a sequence would be {padded:.1f} times as many; {means}.")
    if shortened := sum(one > seq for one in lengths):
        notes.append(f"{shortened:,} examples are longer than --seq {seq:,} and are cut.")
    return replace(question, lengths="", epochs=None, documents=str(weighted), seq=str(seq), tokens=run), notes


def _check_epochs(question: Any) -> None:
    if question.epochs is None:
        return
    if question.tokens.strip():
        raise InputError("--epochs and --tokens both say how long a run is; leave out either.")
    if not 0 < question.epochs <= MOST_EPOCHS:
        raise InputError(f"--epochs is {question.epochs:g}; it is more than 0 and at most {MOST_EPOCHS:,}, such as 3.")
