"""What a user did wrong, said in one sentence.

There are two kinds of bad news, and they never mix. *Wrong input* is an `InputError`: the sentence says what was
given, what is allowed and the nearest thing that would have worked. *Infeasible* (a plan that does not fit) is a
result, not an error, and lives with the results; only a question that has no result without it (a fleet of replicas
that hold no model) is answered by `Infeasible`. Programming mistakes are plain assertions.
"""

import difflib
import re
from collections.abc import Iterable

FAULT, WRONG_INPUT, INFEASIBLE, MISSED = 1, 2, 3, 4
"""Exit codes beside 0: the planner failed, or what was asked cannot be read, cannot be done, or misses its target."""
INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of what Ctrl-C and SIGTERM ended: 128 and the signal's number, as shells and schedulers expect."""


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


class NonFiniteCost(ArithmeticError):
    """A cost that is no finite number: a fault of the planner, named by the term that it comes from.

    >>> str(NonFiniteCost("optimizer", float("nan"), "the plan fsdp8"))
    'The planner failed: optimizer of the plan fsdp8 came out as nan, which is a fault of its own.'
    """

    def __init__(self, term: str, value: float, of: str) -> None:
        super().__init__(f"The planner failed: {term} of {of} came out as {value}, which is a fault of its own.")
        self.term = term


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


def nearest(given: str, allowed: Iterable[str]) -> str:
    """The allowed name that was probably meant: a few letters mistyped, or a beginning typed. Empty if none is near.

    >>> nearest("h10", ["h100", "v5e"]), nearest("least", ["least_loaded", "random"])
    ('h100', 'least_loaded')
    >>> nearest("finetune", ["roofline"]), nearest("cpu", ["tpu7x"]), nearest("--qps", ["--as"])
    ('', '', '')
    """
    typed = given[:MAX_TYPED].lower().strip("-")
    spellings = {name.lower().strip("-"): name for name in allowed}
    near = [spelling for spelling in spellings if is_near(typed, spelling)]
    best = max(near, key=lambda spelling: difflib.SequenceMatcher(None, typed, spelling).ratio(), default="")
    return spellings.get(best, "")


MAX_TYPED = 100
"""Letters of a mistyped name that are looked at."""
LETTERS_FOR_A_TYPO = 4
"""One mistake is taken for a typo in so many letters: in half as many a name is another one."""
SHORTEST_TYPO = 3
"""In fewer letters a changed one makes another name."""
LOOK_ALIKE = str.maketrans("ol", "01")
"""Letters that are typed for digits."""


def is_near(typed: str, name: str) -> bool:
    """Whether a name may have been meant by what was typed: one letter in `LETTERS_FOR_A_TYPO` may be wrong, missing,
    too much or swapped with its neighbour; the end may be missing, and so may the ends of words.

    >>> [is_near("trian", "train"), is_near("megatrn", "megatron-core"), is_near("crit_batch", "critical_batch")]
    [True, True, True]
    >>> [is_near("m2", "v2"), is_near("plan", "explain")]
    [False, False]
    """
    typed, name = typed.translate(LOOK_ALIKE), name.translate(LOOK_ALIKE)
    if not typed:
        return False
    if name.startswith(typed) or _abbreviates(typed, name):
        return True
    if len(typed) < SHORTEST_TYPO:
        return False
    mistakes = max(1, len(typed) // LETTERS_FOR_A_TYPO)
    if len(typed) <= LETTERS_FOR_A_TYPO:
        return edits(typed, name)[-1] <= mistakes
    return min(edits(typed, name)) <= mistakes  # the name, or a beginning of it


def _abbreviates(typed: str, name: str) -> bool:
    """Whether each word of what was typed begins the word at its place in a name."""
    words, others = re.split(r"[-_. ]", typed), re.split(r"[-_. ]", name)
    return len(words) == len(others) > 1 and all(
        other.startswith(word) and word for word, other in zip(words, others, strict=True)
    )


def edits(typed: str, name: str) -> list[int]:
    """How many letters must be changed, added, left out or swapped to make each beginning of a name of what was typed,
    from none of the name's letters to all of them.

    >>> edits("trian", "train")
    [5, 4, 3, 2, 2, 1]
    """
    before_last: list[int] = []
    last = list(range(len(name) + 1))
    for row, letter in enumerate(typed, 1):
        this = [row]
        for column, other in enumerate(name, 1):
            least = min(last[column] + 1, this[column - 1] + 1, last[column - 1] + (letter != other))
            swapped = row > 1 and column > 1 and letter == name[column - 2] and typed[row - 2] == other
            if swapped:
                least = min(least, before_last[column - 2] + 1)
            this.append(least)
        before_last, last = last, this
    return last


MAX_LISTED = 40
"""Names that a message lists; of more, those that resemble what was given, and where all of them are."""


def unknown(what: str, given: object, allowed: Iterable[str], hint: str = "", close: str = "") -> InputError:
    """The error for a name that is not one of `allowed`; `close` is what was meant, where that is known better than by
    the letters. `hint` is said after the names. Many names are left out where nothing is like what was given and the
    hint names the command that lists them.

    >>> print(unknown("chip", "v5q", ["v5p", "h100"]))
    There is no chip 'v5q'; did you mean 'v5p'? Known: h100, v5p.
    >>> print(unknown("chip", "zzz", map(str, range(99)), "`dscale chips` lists all."))
    There is no chip 'zzz'. `dscale chips` lists all.
    """
    names = sorted(allowed)
    close = close or nearest(str(given), names)
    guess = f"; did you mean {close!r}?" if close else "."
    listed = f"Known: {', '.join(names)}."
    if len(names) > MAX_LISTED:
        alike = [name for name in names if resembles(str(given), name)][:MAX_LISTED]
        if alike:
            listed = f"Similar names, of {len(names)} in all: {', '.join(alike)}."
        elif "`dscale" in hint:
            listed = ""
    parts = (f"There is no {what} {shorten(given)}{guess}", listed, hint)
    return InputError(" ".join(part for part in parts if part))


def resembles(given: str, name: str) -> bool:
    """Whether a name is like what was given: more letters of theirs agree, in order, than do not.

    >>> resembles("v5q", "v5p"), resembles("cpu", "mi300x")
    (True, False)
    """
    return difflib.SequenceMatcher(None, given[:MAX_TYPED].lower(), name.lower()).ratio() >= 0.6
