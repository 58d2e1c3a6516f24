"""What a user did wrong, said in one sentence.

There are two kinds of bad news, and they never mix. *Wrong input* is an `InputError`: the sentence says what was
given, what is allowed and the nearest thing that would have worked. *Infeasible* (a plan that does not fit) is a
result, not an error, and lives with the results; only a question that has no result without it (a fleet of replicas
that hold no model) is answered by `Infeasible`. Programming mistakes are plain assertions.
"""

import difflib
import re
from collections.abc import Iterable

WRONG_INPUT, INFEASIBLE, MISSED = 2, 3, 4
INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of what Ctrl-C and SIGTERM ended: 128 and the signal's number, as shells and schedulers expect."""
"""Exit codes beside 0: what was asked cannot be read, cannot be done, or misses its target."""


def printable(text: str, keep: str = "") -> str:
    """Text whose control characters are shown as escapes, except those in `keep`: a name from a
    file may hold sequences that move a terminal's cursor or turn text around.

    >>> print(printable("\x1b[2Jmine"))
    \\x1b[2Jmine
    >>> printable("a\\nb", keep="\\n") == "a\\nb"
    True
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


LONGEST_WORD = 400
"""Characters between two spaces of a message: more than a path or a list has that somebody reads."""
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def cut_words(text: str) -> str:
    """A message whose words are no longer than people write them: names out of files and requests may have megabytes.

    >>> len(cut_words("The field " + "[" * 5000 + " is not known."))
    285
    """
    return _LONG_WORD.sub(lambda word: f"{word[0][:200]}…{word[0][-60:]}", text)


class Terminated(KeyboardInterrupt):
    """SIGTERM came, as schedulers send it to end a job. It ends a command as Ctrl-C does."""


class InputError(ValueError):
    """Something the user wrote cannot be used. The message is the whole story: no traceback is needed.

    It is one line whatever was given: characters that cannot be printed are shown as escapes, and what is too long for
    a word is cut.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(cut_words(printable(sentence)))


class Infeasible(InputError):
    """What was asked for is understood and not available: it names what is missing and by how much."""


REFUSED = (InputError, RecursionError, MemoryError)
"""What is told in a sentence wherever it comes up."""


def sentence_of(error: BaseException) -> str:
    """What is said where a question cannot be answered."""
    if isinstance(error, RecursionError):
        return "The input is nested too deeply to be read."
    return "This machine's memory is too small for the question." if isinstance(error, MemoryError) else str(error)


def shorten(text: object, limit: int = 60) -> str:
    """Quote user input for a message without flooding the terminal.

    >>> shorten("v5x")
    "'v5x'"
    >>> len(shorten("x" * 10_000)) < 80
    True
    """
    try:
        shown = repr(text)
    except ValueError:  # Python does not print integers of thousands of digits
        shown = "a number of thousands of digits"
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}…{shown[-1]}"


def nearest(given: str, allowed: Iterable[str], likeness: float = 0.5) -> str:
    """The most similar allowed name, or an empty string if nothing is close.

    >>> nearest("h10", ["h100", "v5e"])
    'h100'
    """
    spellings = {name.lower(): name for name in allowed}
    found = difflib.get_close_matches(given[:100].lower(), list(spellings), n=1, cutoff=likeness)
    return spellings[found[0]] if found else ""


def unknown(what: str, given: object, allowed: Iterable[str], hint: str = "", close: str = "") -> InputError:
    """The error for a name that is not one of `allowed`; `close` is what was meant, where that is known better than by
    the letters.

    >>> print(unknown("chip", "v5q", ["v5p", "h100"]))
    There is no chip 'v5q'; did you mean 'v5p'? Known: h100, v5p.
    """
    names = sorted(allowed)
    close = close or nearest(str(given), names)
    guess = f"; did you mean {close!r}?" if close else "."
    listed = ", ".join(names[:24]) + (", …" if len(names) > 24 else "")
    return InputError(f"There is no {what} {shorten(given)}{guess} Known: {listed}.{' ' + hint if hint else ''}")
