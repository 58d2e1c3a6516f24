"""Text to tokens and back: a model folder's tokenizer, its chat template, and text that grows with its tokens.

A token stands for bytes, and a character may lie across tokens. So a sequence's text is made of its tokens' bytes, by a
decoder that gives a character when it is whole: each token costs what it adds, whatever came before. Byte-level
vocabularies write bytes as letters; sentencepiece's write spaces as ▁ and rare bytes as <0xE2>. Of any other, a token's
bytes are what it adds to the text of a token before it.

A stop string may lie across tokens too. Text that may be the beginning of one is held back until it is one or cannot be
any more; which characters come out does not depend on how they were cut into tokens.
"""

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from dragonscale.errors import InputError, shorten

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
PLAIN_CHAT = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% "
    "endif %}"
)
"""The template of models that have no text of their own (random weights)."""


def _byte_letters() -> dict[str, int]:
    """The letters by which byte-level vocabularies write bytes: printable ones as themselves, the others from U+0100
    on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


_BYTES = _byte_letters()


@dataclass
class ModelText:
    """A tokenizer with what its folder says: `ends` are the tokens that end a sequence, `named` the special tokens by
    role (`bos_token`), `templates` the chat templates by name, `sampling` the settings that the model's makers
    recommend."""

    tokenizer: Any
    ends: list[int] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    sampling: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokenizer.no_truncation()  # some folders keep the settings of a training run
        self.tokenizer.no_padding()
        self.special = {at for at, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        kinds = json.dumps(json.loads(self.tokenizer.to_str()).get("decoder"))
        self.byte_level, self.fallback = '"ByteLevel"' in kinds, '"ByteFallback"' in kinds
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Tokens of a text; `special` adds what the tokenizer puts around it (a BOS token), which chat templates write
        themselves."""
        try:
            return self.tokenizer.encode(text, add_special_tokens=special).ids
        except (UnicodeEncodeError, TypeError):  # half a surrogate pair, which JSON can write
            raise InputError("The text has characters that are no Unicode (half of a surrogate pair).") from None

    def decode(self, tokens: Iterable[int], skip_special: bool = True) -> str:
        """The text of whole sequences of tokens."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special)

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to a text; nothing for a number beyond the vocabulary, which models may have."""
        if token not in self._pieces:
            self._pieces[token] = self._piece(token)
        return self._pieces[token]

    def _piece(self, token: int) -> bytes:
        written = self.tokenizer.id_to_token(token)
        if written is None:
            return b""
        if token in self.special:
            return written.encode()
        if self.byte_level:
            known = all(letter in _BYTES for letter in written)
            return bytes(_BYTES[letter] for letter in written) if known else written.encode()
        if self.fallback and len(written) == 6 and written.startswith("<0x") and written.endswith(">"):
            return bytes.fromhex(written[3:5])
        before = self.tokenizer.decode([self._anchor], skip_special_tokens=False)
        return self.tokenizer.decode([self._anchor, token], skip_special_tokens=False)[len(before) :].encode()

    @cached_property
    def _anchor(self) -> int:
        """Some token of a word, to be before another: a text's first token loses its space."""
        return self.tokenizer.encode("a", add_special_tokens=False).ids[-1]

    def token_text(self, token: int) -> tuple[str, list[int]]:
        """A token as it is shown beside its log probability: its text (with � for half characters) and its bytes."""
        raw = self.piece(token)
        return raw.decode("utf-8", "replace"), list(raw)

    def chat(self, *conversation: Any, **more: Any) -> list[int]:
        """The tokens of what `written` gives."""
        return self.encode(self.written(*conversation, **more), special=False)

    def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        generate: bool = True,
        **more: Any,
    ) -> str:
        """The prompt of a conversation by the model's chat template; `generate` ends it where the assistant's answer
        begins."""
        if not self.templates:
            raise InputError("This model has no chat template; ask it for plain completions.")
        use = "tool_use" if tools and "tool_use" in self.templates else "default"
        source = self.templates.get(use) or next(iter(self.templates.values()))
        given = {"tools": tools or None, "documents": None, **self.named, **more, "add_generation_prompt": generate}
        given["messages"] = [_message(one) for one in messages]
        try:
            return _template(source).render(given)
        except Exception as error:  # a template is a program: whatever it raises is about these messages
            said = str(error).strip().rstrip(".") or type(error).__name__
            raise InputError(f"The model's chat template does not take these messages: {said}.") from None


class TextStream:
    """The text of one sequence as its tokens come. `add` gives what is new and sure; once a stop string was found,
    `stopped` names it and the rest is dropped. `used` counts the tokens up to there. Special tokens and those that end
    the sequence have no text."""

    def __init__(
        self,
        text: ModelText,
        prompt: Sequence[int],
        stops: Sequence[str] = (),
        ends: Sequence[int] = (),
        include_stop: bool = False,
        skip_special: bool = True,
    ) -> None:
        self._text, self._include = text, include_stop
        self._hidden = frozenset(ends) | (text.special if skip_special else frozenset())
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [stop for stop in stops if stop]
        self._most = max(map(len, self._stops), default=1) - 1
        self._held = ""
        # A tokenizer that drops the space before a text's first word does so here only if the prompt has no word.
        self._first = not text.byte_level and not any(token not in text.special for token in prompt)
        self.stopped, self.used = "", 0

    def add(self, tokens: Iterable[int], last: bool = False) -> str:
        """The text that these tokens make sure; with the `last` ones, all that was held back."""
        made = []
        for token in tokens:
            if self.stopped:
                break
            self.used += 1
            if self.shown(token):
                made.append(self._until_stop(self._bytes.decode(self._raw(token))))
        if last and not self.stopped:
            made.append(self._until_stop(self._bytes.decode(b"", final=True)))
        if last and not self.stopped:
            made.append(self._held)
            self._held = ""
        return "".join(made)

    def shown(self, token: int) -> bool:
        """Whether a token is a part of the text."""
        return token not in self._hidden

    def _raw(self, token: int) -> bytes:
        raw = self._text.piece(token)
        if self._first and raw[:1] == b" ":
            raw = self._text.decode([token], skip_special=False).encode()
        self._first = False
        return raw

    def _until_stop(self, text: str) -> str:
        """What is sure of the text held back and some more: up to the stop string that is complete first, or all of it
        but what may begin one."""
        if not self._stops:
            return text
        whole = self._held + text
        found = [(whole.index(stop) + len(stop), -len(stop), stop) for stop in self._stops if stop in whole]
        if found:
            end, _, self.stopped = min(found)
            return whole[: end if self._include else end - len(self.stopped)]
        ends = range(max(len(whole) - self._most, 0), len(whole))
        sure = next((at for at in ends if any(stop.startswith(whole[at:]) for stop in self._stops)), len(whole))
        self._held = whole[sure:]
        return whole[:sure]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates want it: text parts joined, the arguments of tool calls as the values that their JSON
    says."""
    made = dict(message)
    content = made.get("content")
    if isinstance(content, list):
        if any(not isinstance(part, Mapping) or part.get("type") != "text" for part in content):
            raise InputError("A message has a part that is not of the type 'text'; this server reads text only.")
        made["content"] = "\n".join(str(part.get("text", "")) for part in content)
    elif content is None and not made.get("tool_calls"):
        made["content"] = ""
    if made.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in made["tool_calls"]]
    return made


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    given = call.get("function") or {}
    if not isinstance(given, Mapping):
        raise InputError("A tool call's `function` is an object with `name` and `arguments`.")
    function = dict(given)
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except (ValueError, RecursionError):
            raise InputError(f"The arguments {shorten(function['arguments'])} of a tool call are not JSON.") from None
    return {**call, "function": function}


@lru_cache(maxsize=8)
def _template(source: str) -> Any:
    """A chat template, in a sandbox: it comes with the model and may not do more than write text."""
    from jinja2 import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def fail(message: str) -> None:
        raise TemplateError(message)

    found = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    found.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: (
        json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    )
    found.globals |= {"raise_exception": fail, "strftime_now": lambda form: datetime.now().strftime(form)}
    # Some templates mark what an assistant wrote, for training; here the mark is a block like any other.
    source = re.sub(r"({%[-+]?\s*)generation\b", r"\1if true", source)
    return found.from_string(re.sub(r"({%[-+]?\s*)endgeneration\b", r"\1endif", source))


def load_text(folder: str | Path) -> ModelText:
    """The text of a model folder."""
    path = Path(folder)
    try:
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    except Exception as error:  # `tokenizers` raises plain exceptions
        why = str(error)[:200]
        raise InputError(f"The folder {shorten(str(folder))} has no tokenizer.json to read: {why}.") from None
    about = _json(path / "special_tokens_map.json") | _json(path / "tokenizer_config.json")
    said = {name: one.get("content") if isinstance(one, dict) else one for name, one in about.items()}
    named = {name: one for name, one in said.items() if name.endswith("_token") and isinstance(one, str)}
    generation, config = _json(path / "generation_config.json"), _json(path / "config.json")
    ends = [*_numbers(generation.get("eos_token_id")), tokenizer.token_to_id(named.get("eos_token", ""))]
    found = [token for token in ends if token is not None] or _numbers(config.get("eos_token_id"))
    sampling = {name: generation[name] for name in _SAMPLING if isinstance(generation.get(name), int | float)}
    return ModelText(tokenizer, list(dict.fromkeys(found)), named, _templates(path, about), sampling)


def plain_text(vocabulary: int) -> ModelText:
    """For a model of random weights, which has no tokenizer: a token for each byte, and a word for
    each number above."""
    letters = {byte: letter for letter, byte in _BYTES.items()}
    names = [letters.get(number, f"Ġt{number}") for number in range(vocabulary)]
    tokenizer: Any = Tokenizer(BPE({name: number for number, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return ModelText(tokenizer, templates={"default": PLAIN_CHAT})


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, ensure_ascii=False).encode()  # escapes may say what is no text
    except (OSError, ValueError, RecursionError):
        raise InputError(f"The file {shorten(str(path))} is not JSON, or cannot be read.") from None
    return found if isinstance(found, dict) else {}


def _numbers(ids: Any) -> list[int]:
    return [one for one in (ids if isinstance(ids, list) else [ids]) if isinstance(one, int)]


def _templates(folder: Path, about: Mapping[str, Any]) -> dict[str, str]:
    """A template lies in the tokenizer's config, alone or under several names, or in a file beside it."""
    given = about.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
    named = given if isinstance(given, list) else [{"name": "default", "template": given}] if given else []
    found: dict[str, Any]
    try:
        found = {str(one["name"]): one["template"] for one in named}
        beside = folder / "chat_template.jinja"
        found |= {"default": beside.read_text(encoding="utf-8")} if beside.is_file() else {}
    except (OSError, ValueError, KeyError, TypeError):
        found = {"": None}
    if not all(isinstance(one, str) for one in found.values()):
        raise InputError(f"The chat templates of {shorten(str(folder))} are no texts with their names.")
    return found
