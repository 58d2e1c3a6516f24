"""Text: what comes out in pieces is what the tokenizer itself decodes; stop strings; chat templates."""

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.runtime.server.text import ModelText, TextStream, load_text, plain_text  # noqa: E402

CORPUS = [
    "The owl counted the stones, and the wings; naïve dragons öffnen die Tür.",
    "  two  spaces\n\tand 数字 🐉🐉 end.",
] * 3
SENTENCES = ["Hello the owl! 🐉 naïve", "  leading and  double", "数字 and 👩‍👩‍👧 ünïcödé\n\n", "x", " the"]


def byte_level() -> Any:
    """As GPT-2's, LLaMA-3's and Qwen's."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=letters, special_tokens=special, show_progress=False),
    )
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return made


def sentencepiece(strip: bool = True) -> Any:
    """As LLaMA-2's (which drops a text's first space) and Gemma's (which does not)."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend("▁")] if strip else []), normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=special[:3], limit_alphabet=40, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    kept = json.loads(made.to_str())
    words = [*special, *(word for word in kept["model"]["vocab"] if word not in special)]
    kept["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    parts = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        *([decoders.Strip(" ", 1, 0)] if strip else []),
    ]
    made = tokenizers.Tokenizer.from_str(json.dumps(kept))
    made.decoder = decoders.Sequence(parts)
    return made


def metaspace() -> Any:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=150, special_tokens=["<s>"], show_progress=False))
    return made


KINDS = {
    "byte-level": byte_level,
    "llama-2": sentencepiece,
    "gemma": lambda: sentencepiece(False),
    "metaspace": metaspace,
}


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_what_the_tokenizer_decodes(kind: str) -> None:
    """Token by token and from an empty prompt, the pieces join to the decoded text, and none has half a character."""
    text = ModelText(KINDS[kind]())
    for sentence in [*CORPUS, *(SENTENCES if kind != "metaspace" else ())]:
        tokens = text.encode(sentence)
        stream = TextStream(text, [])
        pieces = [stream.add([token]) for token in tokens] + [stream.add([], last=True)]
        assert "".join(pieces) == text.decode(tokens)
        assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_a_prompt_keeps_its_space(kind: str) -> None:
    text = ModelText(KINDS[kind]())
    whole = text.encode("The owl counted the stones")
    for cut in range(2, len(whole)):
        stream = TextStream(text, whole[:cut])
        assert text.decode(whole[:cut]) + stream.add(whole[cut:], last=True) == "The owl counted the stones"


def test_any_bytes_at_all() -> None:
    """A model may write bytes that are no text: they come out as the tokenizer has them, nothing is
    kept back for ever."""
    text = ModelText(byte_level())
    draw = random.Random(0)
    for _ in range(30):
        tokens = [draw.randrange(2, 258) for _ in range(40)]
        stream = TextStream(text, [])
        pieces = [stream.add([token]) for token in tokens]
        assert "".join(pieces) + stream.add([], last=True) == text.decode(tokens)
    lone = TextStream(text, [])
    turtle = text.encode("🐢", special=False)
    assert len(turtle) > 1
    assert [lone.add([token]) for token in turtle[:-1]] == [""] * (len(turtle) - 1)
    assert lone.add([text.encode("a", special=False)[0]]).endswith("a")


def test_special_and_unknown_tokens() -> None:
    text = ModelText(byte_level())
    assert text.encode("the")[0] == 0
    assert 0 not in text.encode("the", special=False)
    assert TextStream(text, []).add([0, *text.encode("the", special=False), 1, 10_000]) == "the"
    assert TextStream(text, [], skip_special=False).add([0, 1]) == "<s></s>"
    assert TextStream(text, [], ends=text.encode("x", special=False)).add(text.encode("axb")) == "ab"
    assert text.token_text(1) == ("</s>", list(b"</s>"))
    half = text.encode("🐢", special=False)[0]
    assert text.token_text(half)[1][0] == 0xF0
    with pytest.raises(InputError, match="surrogate"):
        text.encode("\ud800")


@pytest.mark.parametrize("size", [1, 2, 7])
def test_stop_strings_across_pieces(size: int) -> None:
    """Whatever the cut, the same text comes out; what may begin a stop string is held back, what
    cannot be one is not."""
    text = plain_text(256)

    def run(said: str, stops: list[str], **options: Any) -> tuple[str, str, int]:
        raw = list(said.encode())
        stream = TextStream(text, [65], stops, **options)
        pieces = [stream.add(raw[at : at + size], last=at + size >= len(raw)) for at in range(0, len(raw), size)]
        return "".join(pieces), stream.stopped, stream.used

    assert run("one two ENDthree", ["END"]) == ("one two ", "END", 11)
    assert run("one two ENDthree", ["END"], include_stop=True) == ("one two END", "END", 11)
    assert run("aaab and on", ["aab", "zzz"]) == ("a", "aab", 4)
    assert run("abcabx rest", ["abcabd"]) == ("abcabx rest", "", 11)
    assert run("abcd", ["abcd", "bc"]) == ("a", "bc", 3)
    assert run("ends in EN", ["END"]) == ("ends in EN", "", 10)
    assert run("ü数", ["数"]) == ("ü", "数", 5)
    held = TextStream(text, [65], ["stop"])
    assert [held.add([byte]) for byte in b"as stx"] == ["a", "", "s ", "", "", "stx"]


def folder(path: Path, **files: Any) -> Path:
    byte_level().save(str(path / "tokenizer.json"))
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


CHAT = (
    "{{ bos_token }}{% for m in messages %}{% if m.role not in ['user', 'assistant', 'system'] %}{{ "
    "raise_exception('Roles are user and assistant') }}"
    "{% endif %}[{{ m['role'] }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim }}{% "
    "endgeneration %}{% else %}{{ m.content | trim }}{% endif %}"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def test_a_model_folder(tmp_path: Path) -> None:
    about = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": True, "chat_template": CHAT}
    text = load_text(folder(tmp_path, tokenizer_config=about, generation_config={"eos_token_id": [1, 5], "top_p": 0.9}))
    assert (text.ends, text.sampling) == ([1, 5], {"top_p": 0.9})
    assert text.named == {"bos_token": "<s>", "eos_token": "</s>"}
    parts = [{"type": "text", "text": "the"}, {"type": "text", "text": "owl"}]
    tokens = text.chat([{"role": "user", "content": parts}, {"role": "assistant", "content": "stones "}])
    assert tokens[0] == 0
    assert text.decode(tokens, skip_special=False) == "<s>[user]the\nowl[assistant]stones[assistant]"
    tools = [{"type": "function", "function": {"name": "é<b>"}}]
    said = text.decode(text.chat([{"role": "user", "content": "x"}], tools, generate=False))
    assert said == '[user]x[{"type": "function", "function": {"name": "é<b>"}}]'
    with pytest.raises(InputError, match="not take these messages: Roles are user and assistant"):
        text.chat([{"role": "dragon", "content": "x"}])
    with pytest.raises(InputError, match="text only"):
        text.chat([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}])
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content.__class__.__mro__ }}")
    with pytest.raises(InputError, match="does not take"):
        load_text(tmp_path).chat([{"role": "user", "content": "x"}])


def test_folders_that_lack_something(tmp_path: Path) -> None:
    bare = load_text(folder(tmp_path, config={"eos_token_id": 7}))
    assert bare.ends == [7]
    with pytest.raises(InputError, match="no chat template; ask it for plain completions"):
        bare.chat([{"role": "user", "content": "x"}])
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        load_text(tmp_path / "nowhere")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        load_text(tmp_path)


def test_added_tokens_and_tokens_of_random_models() -> None:
    made = byte_level()
    made.add_tokens([AddedToken("naïve dragon", normalized=False)])
    text = ModelText(made)
    tokens = text.encode("a naïve dragon!")
    assert TextStream(text, []).add(tokens, last=True) == text.decode(tokens)
    plain = plain_text(1000)
    assert plain.decode(plain.encode("Hé 🐉")) == "Hé 🐉"
    assert TextStream(plain, []).add([104, 105, 999]) == "hi t999"
    assert plain.decode(plain.chat([{"role": "user", "content": "hi"}])) == "user: hi\nassistant: "


def test_long_stop_strings_take_no_room() -> None:
    text, stops = plain_text(300), [chr(200 + at) * 1000 for at in range(64)]
    tracemalloc.start()
    kept = [TextStream(text, [65], stops) for _ in range(8)]
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept) == 8
    assert size < 100_000
