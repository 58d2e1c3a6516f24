"""Output held to a grammar: a JSON schema, a regular expression, a choice or a Lark grammar, through llguidance.

llguidance says which tokens may come next, as bits over the vocabulary, in about 50 µs for a row; the sampler takes the
others away (`sampling`). A row with a grammar needs its token on the host before the next one, so it has no drafts, and
nothing is ever rolled back.
"""

import json
from functools import lru_cache
from typing import Any

import numpy
from llguidance import LLMatcher, LLTokenizer, grammar_from
from llguidance.numpy import fill_next_token_bitmask

from dragonscale.errors import InputError

LARGEST = 64 << 10
"""Characters of a grammar: an engine reads it between two steps of everybody."""
KINDS = ("json_schema", "json_object", "regex", "choice", "lark")


def _grammar(kind: str, text: str) -> str:
    """The grammar in llguidance's own form; wrong JSON is found here, the rest when it is read."""
    if kind not in KINDS:
        raise InputError(f"There is no grammar of the kind {kind!r}; there are {', '.join(KINDS)}.")
    try:
        given = json.loads(text) if kind in ("json_schema", "choice") else None
    except (ValueError, RecursionError) as error:
        raise InputError(f"The {kind} is not JSON: {error}.") from None
    texts = given if isinstance(given, list) else [0]
    if kind == "choice" and not (texts and all(text and isinstance(text, str) for text in texts)):
        raise InputError("A choice is a list of one or more texts that are not empty.")
    return grammar_from("json_schema", '{"type": "object"}') if kind == "json_object" else grammar_from(kind, text)


def check_grammar(kind: str, text: str, tokenizer: LLTokenizer | None = None) -> None:
    """Refuse a grammar that cannot be used, in one sentence. Only a Lark grammar that names special tokens needs the
    tokenizer."""
    if len(text) > LARGEST:
        raise InputError(f"The {kind} has {len(text):,} characters; {LARGEST:,} can be used as a grammar.")
    if why := LLMatcher.validate_grammar(_grammar(kind, text), tokenizer):
        lines = [line.strip() for line in why.splitlines() if line.strip(" ^|")]
        raise InputError(f"The {kind} cannot be used as a grammar: {'; '.join(lines)[:300]}.")


class OutputGrammar:
    """Where one sequence is in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self.take = matcher.consume_token  # go on by a token that was sampled

    def allow(self, bits: numpy.ndarray) -> None:
        """Write the tokens that may come next into bits [⌈v/32⌉]: only ends when the grammar is complete."""
        fill_next_token_bitmask(self._matcher, bits.view(numpy.int32)[None])

    @property
    def complete(self) -> bool:
        """Nothing but an end may follow."""
        return self._matcher.is_stopped()

    @property
    def error(self) -> str:
        """Why it cannot go on; nothing where it can."""
        return self._matcher.get_error().split("\n")[0]


class GrammarReader:
    """Grammars over one vocabulary. `tokenizer` is a `tokenizers.Tokenizer`, `vocab` the model's logits (often more),
    `ends` the tokens that end a text. Grammars that were read lately are kept: requests of one kind come in numbers."""

    def __init__(self, tokenizer: Any, vocab: int, ends: list[int]) -> None:
        self.vocab, self.tokenizer = vocab, LLTokenizer(tokenizer.to_str(), n_vocab=vocab, eos_token=ends)
        self._read = lru_cache(64)(lambda *grammar: LLMatcher(self.tokenizer, _grammar(*grammar), log_level=0))

    def begin(self, grammar: tuple[str, str]) -> OutputGrammar:
        """A sequence at the start of a grammar."""
        return OutputGrammar(self._read(*grammar).deep_copy())

    def masks(self, ranks: int, rows: int, held: dict[tuple[int, int], OutputGrammar]) -> numpy.ndarray:
        """Bits [R, rows, ⌈v/32⌉] for the sampler: those of `held` at (rank, row), and all for the other rows."""
        bits = numpy.full((ranks, rows, -(-self.vocab // 32)), 0xFFFFFFFF, numpy.uint32)
        for at, grammar in held.items():
            grammar.allow(bits[at])
        return bits
