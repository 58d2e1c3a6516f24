"""`--lengths FILE`: the tokens of each example of a dataset, packed into sequences.

A text file has a number a line; JSONL a number a line, or an object whose `length`, `tokens`, `num_tokens` or
`n_tokens` is one, or whose `input_ids` are counted; conversations and files of benchmarks are read too
(`simulation.benchmark_files`). Examples are packed, the longest first into the first sequence with
room (as TRL's and torchtune's packing do); longer ones than a sequence are cut. Attention within an example of n tokens
costs n²: its cost over all tokens is that of examples of Σn²/Σn tokens, which is what `--documents` is set to.
"""

import bisect
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.units import parse_length
from dragonscale.tables import check_regular

KEYS = ("length", "tokens", "num_tokens", "n_tokens")
MAX_EPOCHS = 10_000
MAX_BYTES = 16 << 30  # a file of `input_ids` may be large, since it is read line by line
MAX_LINE = 64 << 20  # characters: a line of ten million tokens is no example
MAX_EXAMPLES = 10_000_000
MIN_SEQUENCE = 2048
# Where `--seq` is not given: a power of two from `MIN_SEQUENCE` on that holds this share of the examples whole.
WHOLE_SHARE = 0.95


@dataclass(frozen=True)
class ReadLengths:
    """Lengths in tokens, and what their file was read as, where that needs a sentence."""

    tokens: list[int]
    note: str = ""


def read_lengths(path: str, answers: bool = False) -> ReadLengths:
    """The token counts of a file; of conversations and benchmarks those of the whole requests, or of `answers`."""
    # the simulator's readers, which a plan without a dataset does not need
    from dragonscale.simulation.trace_files import read_benchmark

    shown = f"--lengths {shorten(path)}"
    lengths: list[int] = []
    try:
        file = Path(path).expanduser()
        if file.is_file() and (benchmark := read_benchmark(file)):
            tokens = [request.output_tokens if answers else request.whole_tokens for request in benchmark.requests]
            return ReadLengths(tokens, benchmark.note)
        if check_regular(file, "--lengths").st_size > MAX_BYTES:
            raise InputError(f"{shown} is larger than {MAX_BYTES >> 30} GiB; give the token counts of fewer examples.")
        with file.open(encoding="utf-8") as lines:
            # a bounded readline, so that a file without line breaks is not read whole
            for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE + 1), ""), 1):
                if len(line) > MAX_LINE:
                    raise InputError(f"Line {number} of {shown} is longer than {MAX_LINE >> 20} MiB.")
                if line.strip():
                    lengths.append(_read_count(line.strip(), path, number))
                if len(lengths) > MAX_EXAMPLES:
                    raise InputError(f"{shown} has more than {MAX_EXAMPLES:,} examples; give a sample of them.")
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{shown} cannot be read; give a text file or JSONL of token counts.") from error
    if not lengths:
        raise InputError(f"{shown} is empty; write the tokens of an example in each line.")
    return ReadLengths(lengths)


def _read_count(line: str, path: str, line_number: int) -> int:
    """The tokens of the example in a line."""
    try:
        value: Any = json.loads(line)
    except ValueError:
        value = line
    if isinstance(value, dict):
        # a tokenised example: its length is counted
        value = next((value[key] for key in KEYS if key in value), value.get("input_ids"))
        if isinstance(value, list):
            value = len(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not 1 <= value <= 10**9:
        raise InputError(
            f"Line {line_number} of --lengths {shorten(path)} is {shorten(line)}; write a number of tokens, or an "
            "object with length, tokens or input_ids."
        )
    return int(value)


def packed_sequences(lengths: list[int], seq: int) -> int:
    """Sequences that examples fill, by best fit: the longest first, each into the fullest sequence that has room.

    >>> packed_sequences([600, 500, 400, 300, 200], 1024)
    2
    """
    free: list[int] = []  # tokens left in each sequence, ascending
    # best fit, decreasing: `free` stays sorted, so the fullest sequence with room is found by bisection
    for length in sorted((min(length, seq) for length in lengths), reverse=True):
        index = bisect.bisect_left(free, length)
        space = free.pop(index) if index < len(free) else seq
        bisect.insort(free, space - length)
    return len(free)


def usual_sequence(lengths: list[int], context: int | None) -> int:
    """Tokens of a sequence that holds most examples whole, within the positions of the model (None: any number).

    >>> usual_sequence([300] * 96 + [9000] * 4, 8192), usual_sequence([3000] * 9 + [20_000], 8192)
    (2048, 8192)
    """
    # the length that all but the longest twentieth of the examples keep within
    longest = sorted(lengths)[math.ceil(WHOLE_SHARE * len(lengths)) - 1]
    size = max(MIN_SEQUENCE, 1 << (longest - 1).bit_length())  # the next power of two
    return min(size, context or size)


def with_lengths(question: TrainQuestion) -> tuple[TrainQuestion, list[str]]:
    """A question with what a dataset's lengths say of its documents, and where they are not given, of its sequences and
    the tokens of a run: `--epochs` (one by default) of whole sequences."""
    if question.examples is not None:
        return _with_examples(question)
    if not question.lengths.strip():
        if question.epochs is not None:
            raise InputError(
                "--epochs counts passes over a dataset: give its --lengths FILE, or how many --examples it has and "
                "their mean (--examples 52000 --documents 150); or --tokens instead."
            )
        return question, []
    if question.documents.strip():
        raise InputError("--lengths has the lengths of documents, and --documents their mean; leave out either.")
    _check_epochs(question)
    lengths_read = read_lengths(question.lengths)
    lengths = lengths_read.tokens
    notes = list(filter(None, [lengths_read.note]))
    if question.seq.strip():
        seq = parse_length(question.seq, "--seq")[0]
    else:
        seq = usual_sequence(lengths, _context_of(question))
        whole = sum(length <= seq for length in lengths) / len(lengths)
        notes.append(f"--seq {seq} taken: it holds {whole:.0%} of the examples whole.")
    cut = [min(length, seq) for length in lengths]
    tokens = sum(cut)
    sequences = packed_sequences(lengths, seq)
    # attention over a document of n tokens costs n² in all, so n for each of its tokens: the mean by tokens
    weighted = round(sum(length * length for length in cut) / tokens)
    notes.append(
        f"{len(lengths):,} examples of {tokens:,} tokens, packed into {sequences:,} sequences of {seq:,} "
        f"({tokens / (sequences * seq):.0%} full); one example a sequence would be {len(lengths) / sequences:.1f} "
        f"times as many; the mean is {tokens / len(lengths):,.0f} tokens, {weighted:,} weighted by length as attention "
        "counts it."
    )
    if shortened := sum(length > seq for length in lengths):
        notes.append(f"{shortened:,} examples are longer than --seq {seq:,} and are cut.")
    run_tokens = question.tokens.strip() or str(round((question.epochs or 1) * sequences * seq))
    packed = replace(question, lengths="", epochs=None, documents=str(weighted), seq=str(seq), tokens=run_tokens)
    return packed, notes


def _with_examples(question: TrainQuestion) -> tuple[TrainQuestion, list[str]]:
    """A question with the tokens of a run over so many examples of a mean length."""
    if question.lengths.strip():
        raise InputError(
            "--lengths has every example of a dataset, and --examples how many there are; leave out either."
        )
    if not question.documents.strip():
        raise InputError(
            f"--examples {question.examples} says how many examples there are and not how long: give their mean in "
            "tokens too, such as --documents 150."
        )
    _check_epochs(question)
    mean, _ = parse_length(question.documents, "--documents")
    epochs = question.epochs or 1
    tokens = round(question.examples * mean * epochs)
    note = (
        f"{question.examples:,} examples of {mean:,} tokens, {epochs:g} times: {tokens:,} tokens, packed into whole "
        "sequences; one example a sequence would take more."
    )
    return replace(question, examples=None, epochs=None, tokens=str(tokens)), [note]


def _context_of(question: TrainQuestion) -> int | None:
    """The positions of the model that is asked about; None where it is not named or has no limit."""
    if not written(question.model):
        return None
    return load_model(with_assumed(question.model, question.assume, question.family)).context


def _check_epochs(question: TrainQuestion) -> None:
    if question.epochs is None:
        return
    if question.tokens.strip():
        raise InputError("--epochs and --tokens both say how long a run is; leave out either.")
    if not 0 < question.epochs <= MAX_EPOCHS:
        raise InputError(f"--epochs is {question.epochs:g}; it is more than 0 and at most {MAX_EPOCHS:,}, such as 3.")
