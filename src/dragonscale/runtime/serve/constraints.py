"""Output held to a grammar: a JSON schema, a regular expression, a choice or a Lark grammar, through llguidance.

llguidance says which tokens may come next, as bits over the vocabulary, in about 50 µs for a row; the sampler takes the
others away (`sampling`). A row with a grammar needs its token on the host before the next one, so it has no drafts, and
nothing is ever rolled back.

Whoever sends a grammar decides how much work it is, so all of it is bounded: the states that llguidance may build
(`LIMITS`), and the time that the masks of a sequence may take (`FIRST_MASKS_S`). Nothing bounds the time of a build
itself (a multiple of a large prime as a JSON schema takes minutes), so a server has it tried in a process that can be
killed first (`runtime.server.grammar_check`).
"""

import json
import time
from functools import lru_cache
from typing import Any

import numpy
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, grammar_from
from llguidance.numpy import fill_next_token_bitmask

from dragonscale.errors import InputError

LARGEST = 64 << 10
"""Characters of a grammar."""
KINDS = ("json_schema", "json_object", "regex", "choice", "lark")
LIMITS = LLParserLimits(
    initial_lexer_fuel=300_000, step_lexer_fuel=100_000, max_lexer_states=100_000, verbose_errors=False
)
"""A third to a half of llguidance's own limits, by which one mask takes 0.14 s at worst and not a second. Text of a
bounded length takes about six states a token, so there are enough for 16,000 tokens of it; other text takes few."""
FIRST_MASKS_S, MASK_S = 0.25, 0.002
"""Seconds of a core that the masks of a sequence may take: so many at its start, where states are built, and so many
more for each. A usual mask takes 0.0001."""
REASONS = {
    "NoExtensionBias": "no text is complete under it",
    "too many states": "it needs too many states",
    "too many expressions": "it needs too many states",
    "fuel exhausted": "it needs too many states",
    "Too many items": "it needs too many states",
    "Current row has": "too many of its rules apply at once",
}
"""What llguidance says of grammars that it cannot follow, and how a client is told."""
_DATA = ("enum", "const", "default", "examples")
"""Keywords of JSON schema whose values are data, in which `pattern` means nothing."""


def _ends_in_an_escape(regex: str) -> bool:
    """Whether a regex ends with a backslash that escapes nothing, which llguidance drops.

    >>> _ends_in_an_escape("a\\\\"), _ends_in_an_escape("a\\\\\\\\")
    (True, False)
    """
    return (len(regex) - len(regex.rstrip("\\"))) % 2 == 1


def _regexes_of(schema: Any) -> list[str]:
    """The regexes in a JSON schema, wherever they are."""
    regexes: list[str] = []
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo += part
        elif isinstance(part, dict):
            pattern, by_name = part.get("pattern"), part.get("patternProperties")
            if isinstance(pattern, str):
                regexes.append(pattern)
            if isinstance(by_name, dict):
                regexes += by_name
            todo += [value for name, value in part.items() if name not in _DATA]
    return regexes


def _grammar(kind: str, text: str) -> str:
    """The grammar in llguidance's own form; what llguidance itself would overlook is found here."""
    if kind not in KINDS:
        raise InputError(f"There is no grammar of the kind {kind!r}; there are {', '.join(KINDS)}.")
    if len(text) > LARGEST:
        raise InputError(f"The {kind} has {len(text):,} characters; {LARGEST:,} can be used as a grammar.")
    try:
        given = json.loads(text) if kind in ("json_schema", "choice") else None
    except (ValueError, RecursionError) as error:
        raise InputError(f"The {kind} is not JSON: {error}.") from None
    texts = given if isinstance(given, list) else [0]
    if kind == "choice" and not (texts and all(text and isinstance(text, str) for text in texts)):
        raise InputError("A choice is a list of one or more texts that are not empty.")
    regexes = [text] if kind == "regex" else []
    if kind == "json_schema":
        regexes = _regexes_of(given)
    if any(map(_ends_in_an_escape, regexes)):
        raise _unusable(kind, "a regex ends with a backslash, which escapes nothing")
    if kind == "json_object":
        return grammar_from("json_schema", '{"type": "object"}')
    return grammar_from(kind, text)


def _unusable(kind: str, why: str) -> InputError:
    """One sentence of what llguidance says in many lines."""
    known = next((reason for said, reason in REASONS.items() if said in why), None)
    if known is None:
        lines = [line.strip() for line in why.replace("<non-verbose/>", "").splitlines() if line.strip(" ^|")]
        known = "; ".join(lines)[:300].rstrip(".")
    return InputError(f"The {kind} cannot be used as a grammar: {known}.")


class OutputGrammar:
    """Where one sequence is in its grammar."""

    def __init__(self, kind: str, matcher: LLMatcher) -> None:
        self.kind = kind
        self._matcher = matcher
        self._masks = 0
        self._masks_s = 0.0
        self.take = matcher.consume_token  # go on by a token that was sampled

    def allow(self, bits: numpy.ndarray) -> None:
        """Write the tokens that may come next into bits [⌈v/32⌉]: only ends when the grammar is complete."""
        began = time.thread_time()
        fill_next_token_bitmask(self._matcher, bits.view(numpy.int32)[None])
        self._masks_s += time.thread_time() - began
        self._masks += 1

    @property
    def complete(self) -> bool:
        """Nothing but an end may follow."""
        return self._matcher.is_stopped()

    @property
    def error(self) -> str:
        """Why the sequence cannot go on; nothing where it can."""
        if said := self._matcher.get_error():
            return str(_unusable(self.kind, said))
        if self._masks_s > FIRST_MASKS_S + MASK_S * self._masks:
            return f"The {self.kind} takes too long at every token to be used as a grammar."
        return ""

    @property
    def disobeyed(self) -> bool:
        """Whether the error is a token that the grammar does not allow, which is no fault of the grammar."""
        return "satisfy the grammar" in self._matcher.get_error()


class GrammarReader:
    """Grammars over one vocabulary. `tokenizer` is a `tokenizers.Tokenizer` as JSON, `vocab` the model's logits (often
    more), `ends` the tokens that end a text. Grammars that were read lately are kept: requests of one kind come in
    numbers. All of it may be called by several threads."""

    def __init__(self, tokenizer: str, vocab: int, ends: list[int]) -> None:
        self.vocab, self.tokenizer = vocab, LLTokenizer(tokenizer, n_vocab=vocab, eos_token=ends)
        self._known = lru_cache(64)(self.read)

    def read(self, kind: str, text: str) -> LLMatcher:
        """A grammar, built and tried on its first token, because some faults show there only. What cannot be used is an
        `InputError`."""
        matcher = LLMatcher(self.tokenizer, _grammar(kind, text), log_level=0, limits=LIMITS)
        bits = numpy.zeros(self._words, numpy.uint32)
        start = OutputGrammar(kind, matcher)
        start.allow(bits)  # what this computes is kept, so that an engine need not
        first = numpy.flatnonzero(numpy.unpackbits(bits.view(numpy.uint8), bitorder="little"))[:1]
        if not start.error and not start.complete and len(first):
            start = OutputGrammar(kind, matcher.deep_copy())
            start.take(int(first[0]))  # some faults show only when the text goes on
            start.allow(bits)
        if why := start.error:
            raise InputError(why)
        return matcher

    def begin(self, grammar: tuple[str, str]) -> OutputGrammar:
        """A sequence at the start of a grammar."""
        return OutputGrammar(grammar[0], self._known(*grammar).deep_copy())

    def masks(self, ranks: int, rows: int, held: dict[tuple[int, int], OutputGrammar]) -> numpy.ndarray:
        """Bits [R, rows, ⌈v/32⌉] for the sampler: those of `held` at (rank, row), and all for the other rows."""
        bits = numpy.full((ranks, rows, self._words), 0xFFFFFFFF, numpy.uint32)
        for at, grammar in held.items():
            grammar.allow(bits[at])
        return bits

    @property
    def _words(self) -> int:
        return -(-self.vocab // 32)
