"""A batch as people write it, in tokens (`4M`) or sequences (`512seq`), read as sequences."""

import re

from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse_count

MAX_BATCH = 10**12


def read_batch(text: str, sequence: int) -> tuple[int, str]:
    """A batch as sequences of `sequence` tokens, and a note where the reading needs one.

    `4M` tokens are no whole number of sequences of 8192; where the binary reading (4Mi) is one, that is meant.
    """
    stripped = text.strip()
    sequences = read_sequences(text)
    if sequences is not None:
        return sequences, ""
    tokens = _checked(parse_count(stripped, "the batch"), text)
    # a decimal number of tokens may be meant as it is written: 4,194,304 or 64k
    if tokens % sequence == 0:
        return tokens // sequence, ""
    if stripped[-1:] in "kKmMGbBtT":
        # B is a billion of tokens; its binary counterpart is Gi
        binary_text = stripped[:-1] + stripped[-1].upper().replace("B", "G") + "i"
        binary_tokens = parse_count(binary_text, "the batch")
        sequences, rest = divmod(binary_tokens, sequence)
        if not rest:
            return sequences, (
                f"A batch of {stripped} tokens is not a whole number of sequences of {sequence}; taken as {stripped}i, "
                f"{binary_tokens:,} tokens ({sequences} sequences)."
            )
    if tokens < sequence:
        raise InputError(
            f"A batch of {shorten(text)} tokens is less than one sequence of {sequence:,}; write a number of sequences "
            f"such as {min(tokens, 512)}seq."
        )
    # neither reading divides: the nearest whole number of sequences
    sequences = round(tokens / sequence)
    return sequences, (
        f"A batch of {stripped} tokens is not a whole number of sequences of {sequence:,}; rounded to {sequences:,} "
        f"sequences, {sequences * sequence:,} tokens."
    )


def read_sequences(text: str) -> int | None:
    """A batch that is written in sequences; None where it is not.

    >>> read_sequences("192seq"), read_sequences("4M")
    (192, None)
    """
    match = re.fullmatch(r"(.*?)\s*(?:sequences|sequence|seqs|seq)", text.strip())
    return _checked(parse_count(match[1], "the batch"), text) if match else None


def _checked(number: int, text: str) -> int:
    if not 1 <= number <= MAX_BATCH:
        raise InputError(f"The batch is {shorten(text)}; it has at least one token and at most 10^12.")
    return number
