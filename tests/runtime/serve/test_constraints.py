"""Output held to a grammar parses, whatever the model says; a grammar that is none is told at once."""

import json
import re
import time

import numpy
import pytest

pytest.importorskip("jax")
pytest.importorskip("llguidance")

import jax
import jsonschema
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dragonscale.errors import InputError
from dragonscale.runtime.serve.constraints import GrammarReader
from dragonscale.runtime.serve.requests import GenerateRequest, Sampling
from dragonscale.runtime.serve.sampling import Sampler
from dragonscale.runtime.serve.steps import EngineLimits, StepShape, empty_batch
from dragonscale.runtime.server.building import grammar_reader
from dragonscale.runtime.server.text import ModelText

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
GRAMMARS = {
    "json_schema": json.dumps(SCHEMA),
    "regex": r"[a-f]{2,4}-\d{3}",
    "choice": '["yes", "no", "per\\"haps"]',
    "lark": 'start: "<" /[a-z]{1,5}/ ">" | "none"',
}
END, VOCAB = 0, 330  # the model has more logits than the tokenizer has tokens


def tokenizer() -> Tokenizer:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer, found.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    texts = ['{"name": "abc", "age": 12, "kind": "cat"}', "yes no none true false hello abc-123"] * 4
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False),
    )
    return found


def test_a_tokenizer_without_a_decoder_is_served_without_grammars() -> None:
    words = Tokenizer(models.WordLevel({"<end>": 0, "a": 1, "b": 2}, unk_token="a"))
    assert grammar_reader(ModelText(words, [END]), VOCAB) is None
    assert grammar_reader(ModelText(tokenizer()), VOCAB) is None  # nothing says how a text ends
    assert grammar_reader(ModelText(tokenizer(), [END]), VOCAB) is not None


def test_random_logits_give_texts_of_the_grammar() -> None:
    """Sequences of every kind in one batch, beside one that is free; each until its grammar is complete."""
    each, words = 3, tokenizer()
    reader, random = GrammarReader(words.to_str(), VOCAB, [END]), numpy.random.default_rng(2)
    kinds = [kind for kind in GRAMMARS for _ in range(each)]
    rows = len(kinds) + 1
    sampler = Sampler(EngineLimits(pages=2, sequences=rows), VOCAB)
    for slot, kind in enumerate([*kinds, ""]):
        grammar = (kind, GRAMMARS[kind]) if kind else None
        sampler.admit(
            0, slot, GenerateRequest(id="a", prompt=[1], sampling=Sampling(seed=slot, grammar=grammar, bias={33: -9.0}))
        )
    held = {(0, row): reader.begin((kind, GRAMMARS[kind])) for row, kind in enumerate(kinds)}
    output: list[list[int]] = [[] for _ in range(rows)]
    for position in range(100):
        batch = empty_batch(StepShape(rows), 1, 1, rows)
        batch.slots[:], batch.positions[:] = numpy.arange(rows), position
        logits = jax.device_put(random.normal(size=(1, rows, VOCAB)).astype(numpy.float32) * 2)
        tokens = numpy.asarray(sampler.sample(logits, batch, reader.masks(1, rows, held)).tokens)[0]
        for row, token in enumerate(tokens):
            output[row].append(int(token))
            if (0, row) in held and not held[0, row].complete:
                held[0, row].take(int(token))
                assert not held[0, row].error
            elif (0, row) in held:
                assert token == END, "only an end may follow"
        if all(END in found for found in output[:-1]):
            break
    texts = [words.decode(found[: found.index(END)]) for found in output[:-1]]
    for kind, text in zip(kinds, texts, strict=True):
        if kind == "json_schema":
            jsonschema.validate(json.loads(text), SCHEMA)
        elif kind == "choice":
            assert text in ("yes", "no", 'per"haps')
        else:
            assert re.fullmatch(GRAMMARS["regex"] if kind == "regex" else "<[a-z]{1,5}>|none", text)
    assert len(set(texts)) > 6
    assert max(output[-1]) >= 300, "the free row has the whole vocabulary"


@pytest.fixture(scope="module")
def reader() -> GrammarReader:
    return GrammarReader(tokenizer().to_str(), VOCAB, [END])


BACKSLASH = "\\"
MUTUAL = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
BAD = [
    ("yaml", "", "no grammar of the kind 'yaml'; there are json_schema"),
    ("json_schema", "{", "The json_schema is not JSON"),
    ("json_schema", '{"type": "strin"}', "Invalid type: strin"),
    ("json_schema", '{"$ref": "http://a/b"}', "http://a/b"),
    ("json_schema", "[1]", "must be an object"),
    ("regex", "(a|", "unclosed group"),
    ("choice", "[]", "one or more texts"),
    ("choice", '{"a": 1}', "one or more texts"),
    ("lark", "start: foo", "unknown name"),
    # what shows only when the first tokens are asked for
    ("lark", "start: start start", "no text is complete"),
    ("lark", "start: a\na: b\nb: a", "no text is complete"),
    ("lark", 'start: "a" start', "too many states"),
    ("lark", 'start: %json {"$ref": "#"}', "no text is complete"),
    ("json_schema", '{"$ref": "#"}', "no text is complete"),
    (
        "json_schema",
        '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}',
        "no text",
    ),
    # what is too large
    ("regex", "b{999999}", "too many states"),
    ("regex", "a{1000000}", "too many states"),
    ("regex", "(a{1000}){1000}", "used as a grammar"),
    ("lark", "start: /a{1000000}/", "too many states"),
    ("choice", json.dumps([f"number {number} of many" for number in range(2100)]), "too many of its rules"),
    # what llguidance reads as something else
    ("regex", BACKSLASH, "ends with a backslash"),
    ("regex", "a" + BACKSLASH, "ends with a backslash"),
    ("regex", "a" + 3 * BACKSLASH, "ends with a backslash"),
    ("json_schema", json.dumps({"type": "string", "pattern": "a" + BACKSLASH}), "ends with a backslash"),
    ("json_schema", json.dumps({"items": {"patternProperties": {BACKSLASH: {}}}}), "ends with a backslash"),
]


@pytest.mark.parametrize(("kind", "text", "said"), BAD, ids=range(len(BAD)))
def test_a_bad_grammar_is_one_sentence(reader: GrammarReader, kind: str, text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as found:
        reader.read(kind, text)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 400


GOOD = [
    *GRAMMARS.items(),
    ("json_object", ""),
    ("regex", "a" + 2 * BACKSLASH),
    ("regex", ".{0,20000}"),
    ("regex", "(ab|cd){0,999999}"),
    ("json_schema", json.dumps({"enum": [{"pattern": BACKSLASH}]})),
    ("json_schema", json.dumps({"properties": {"pattern": {"type": "string", "maxLength": 100_000}}})),
    ("json_schema", json.dumps({"type": "array", "minItems": 100_000, "items": {"type": "integer"}})),
]


@pytest.mark.parametrize(("kind", "text"), GOOD, ids=range(len(GOOD)))
def test_a_good_grammar_is_read(reader: GrammarReader, kind: str, text: str) -> None:
    reader.read(kind, text)


@pytest.mark.parametrize(
    ("regex", "said"), [("[ac]b{20000}", "takes too long at every token"), ("[ac]b{999999}", "too many states")]
)
def test_a_text_that_becomes_too_much_work_ends(reader: GrammarReader, regex: str, said: str) -> None:
    """Its first token is easy; later ones take long, and the sequence is told so before it is through."""
    sequence, bits = reader.begin(("regex", regex)), numpy.zeros(-(-VOCAB // 32), numpy.uint32)
    began, count = time.thread_time(), 0
    while not sequence.error:
        sequence.allow(bits)
        sequence.take(int(numpy.flatnonzero(numpy.unpackbits(bits.view(numpy.uint8), bitorder="little"))[0]))
        count += 1
        assert count < 1000
    assert said in sequence.error
    assert not sequence.disobeyed
    assert time.thread_time() - began < 2


def test_a_token_that_a_grammar_does_not_allow_is_no_fault_of_the_grammar(reader: GrammarReader) -> None:
    sequence = reader.begin(("regex", "ab"))
    sequence.take(66)
    assert sequence.error
    assert sequence.disobeyed
