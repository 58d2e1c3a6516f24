"""Numbers and words as problems write them."""

import re

from dragonscale.physics.units import render

_MONEY = ((1e9, "B"), (1e6, "M"))


def amount(value: float, dimension: str, digits: int = 4) -> str:
    """A quantity with its unit, to four digits; what is past the usual prefixes in the exponent form.

    >>> amount(1.97e14, "FLOP/s"), amount(0.00125, "s"), amount(2**24, "bytes")
    ('197TFLOP/s', '1.25ms', '16.78MB')
    >>> amount(8.4e22, "FLOP"), amount(3.097e6, "USD")
    ('8.4e22FLOP', '$3.097M')
    """
    if dimension == "FLOP" and value >= 1e21:
        return f"{number(value, digits)}FLOP"
    for scale, prefix in _MONEY if dimension == "USD" else ():
        if value >= scale:
            return f"${number(value / scale, digits)}{prefix}"
    return render(value, dimension, digits)


def count(value: float) -> str:
    """A whole number with its digits grouped.

    >>> count(4194304)
    '4,194,304'
    """
    return f"{round(value):,}"


def number(value: float, digits: int = 4) -> str:
    """A bare number to some digits, in the exponent form that formulas use where it is large or small.

    >>> number(3.14159), number(6.3e24), number(28672), number(0.00025)
    ('3.142', '6.3e24', '28,672', '2.5e-4')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.0f}" if value == int(value) else f"{float(f'{value:.{digits}g}'):,g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{short}e{int(exponent)}"


def written(value: float, how: str) -> str:
    """A value as a text says it is written: `number`, `whole`, or the dimension of an amount; digits after a blank.

    >>> written(0.00125, "s"), written(1234567, "bytes 6"), written(3.14159, "number 3"), written(4096, "whole")
    ('1.25ms', '1.23457MB', '3.14', '4,096')
    """
    word, _, digits = how.partition(" ")
    if word == "whole":
        return count(value)
    to = int(digits or 4)
    return number(value, to) if word == "number" else amount(value, word, to)


def some(quantity: float, noun: str, plural: str = "") -> str:
    """A number of things.

    >>> some(1, "byte"), some(0.5, "byte"), some(4096, "token"), some(2, "axis", "axes")
    ('1 byte', '0.5 bytes', '4,096 tokens', '2 axes')
    """
    return f"{number(quantity)} {noun if quantity == 1 else plural or noun + 's'}"


def a(noun: str) -> str:
    """A noun with its article, by how it is spoken.

    >>> a("h100"), a("v5e"), a("int8 matmul"), a("NVIDIA H100"), a("ReduceScatter"), a("8-way split"), a("unit")
    ('an h100', 'a v5e', 'an int8 matmul', 'an NVIDIA H100', 'a ReduceScatter', 'an 8-way split', 'a unit')
    """
    return f"{'an' if _VOWEL.match(noun) else 'a'} {noun}"


def in_english(text: str) -> str:
    """A text that was put together from numbers and names, its articles and plurals put right.

    >>> in_english("A h100 adds 1 bytes and an ReduceScatter; A is an array, P − 1 tokens, 21 tokens")
    'An h100 adds 1 byte and a ReduceScatter; A is an array, P − 1 tokens, 21 tokens'
    """
    spoken = _ARTICLE.sub(_article, text)
    return _ONE.sub(lambda noun: f"1 {noun[1]}{_SINGLE.get(noun[2], noun[2][:-1])}", spoken)


def _article(match: re.Match[str]) -> str:
    letter, n, word = match[1], match[2], match[3]
    vowel = bool(_VOWEL.match(word))
    if n or not vowel:
        return letter + ("n " if n and vowel else " ")
    # "A is gathered" has a matrix called A; names (h100, AllReduce) are not ordinary words.
    named = len(word) > 1 and re.search(r"[\dA-Z]", word)
    return letter + ("n " if named or (letter == "a" and word not in _AFTER_A_LETTER) else " ")


_SPOKEN = "FLOP|LLaMA|NIC|NCCL|SHARP|SMEM|RAM|MAC|NUMA|MB|ReLU"
"""Names in capitals that are spoken as a word (or begin with a consonant's sound)."""
_VOWEL = re.compile(
    rf"(?!{_SPOKEN})(?:(?!uni|use|usu|eu|one|once)[aeiouAEIO]|hour|8|1[18](?!\d)"
    # Spelled out: an H100, an MXU, an fp8 matmul, an NVIDIA GPU.
    r"|[FHLMNRSX](?=[\dA-Z]|\b)|[fhlm]p?\d|mi\d|rtx|MoE)"
)
_ARTICLE = re.compile(r"(?<![\w.'·*+/=−-])(?<![·*+/=−-] )([Aa])(n?) (?=([A-Za-z\d][\w-]*))")
_AFTER_A_LETTER = ("and", "are", "as", "at", "if", "in", "is", "of", "on", "or", "each")
_ONE = re.compile(
    r"(?<![\w.,])(?<![−+-] )1 ((?:whole |cached |query |KV |more |fp32 |bf16 )?)"
    r"((?:byte|token|sequence|replica|chip|step|layer|expert|GPU|link|hop|cable|node|stage|host|day|head|request|core|"
    r"bit|slice|pod|way|weight|prompt|minute|hour|matrice|switche|batche|microbatche|axe|copie|ring|device|row|column|failure|"
    r"element|number|block|piece|pool|millisecond|second|draft|FLOP|group|tensor|axis)s)\b"
)
_SINGLE = {"matrices": "matrix", "switches": "switch", "batches": "batch", "microbatches": "microbatch"}
_SINGLE |= {"axes": "axis", "copies": "copy", "axis": "axis"}
