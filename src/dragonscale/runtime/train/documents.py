"""Documents as tokens: text, JSONL, parquet and datasets of Hugging Face, tokenised once and kept.

A file of documents becomes a token file in the user's cache folder, and from there on it is one like any other
(`train.tokens`): mapped into memory, cut into windows, in an order that is a function of the seed. A plain text is its
tokens and the one that ends a text; texts follow each other, and windows cut through them.

A conversation (`messages`, or a prompt with its answer) is written by the model's chat template, and only what the
assistant says is learnt. A token that is not is kept as its complement, a negative number, so that the inputs and their
loss mask are one row of numbers. Conversations stay whole: each goes into the fullest open window that has room for it,
and what is left of a window is padding. The first token of every document is marked by a bit above all tokens.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.files import user_cache
from dragonscale.installing import install_hint
from dragonscale.locks import wait_for
from dragonscale.models import hub

if TYPE_CHECKING:
    from dragonscale.runtime.server.text import ModelText

ENDINGS = (".txt", ".jsonl", ".parquet", ".arrow")
ROLES = {"human": "user", "gpt": "assistant"}
"""What ShareGPT calls who speaks."""
PAIRS = (("prompt", "completion"), ("instruction", "output"), ("question", "answer"))
"""Fields of a prompt and of its answer: TRL's, Alpaca's, GSM8K's."""
BYTES = "bytes"
TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "generation_config.json", "chat_template*")
BEGINS = 1 << 30
"""The bit of a token that begins a document."""
OPEN = 64
"""Windows that are open at once while conversations are packed."""
_AT_ONCE = 256
"""Texts that are tokenised at once, on all cores."""


def tokenizer_folder(model: str, tokenizer: str, weights: str) -> Path | None:
    """The folder of the tokenizer that is named, or of that of the weights or of the model."""
    repo = hub.hub_name(model)
    places = [tokenizer] if tokenizer else [weights, model, str(Path(model).parent), str(repo and hub.cached(repo))]
    return next((Path(one) for one in places if one and (Path(one) / "tokenizer.json").is_file()), None)


def tokenizer_for(model: str, tokenizer: str, weights: str, vocab: int) -> "ModelText":
    """The same, read; `bytes` stand for themselves."""
    try:
        from dragonscale.runtime.server.text import load_text, plain_text
    except ImportError:
        raise InputError(f"To tokenise text, tokenizers must be installed: {install_hint('serve')}") from None
    found = tokenizer_folder(model, tokenizer, weights)
    if found is None and tokenizer != BYTES:
        where = f"in {shorten(tokenizer)}" if tokenizer else "with the model or its weights, for text"
        raise InputError(f"There is no tokenizer.json {where}; give --tokenizer its folder, or {BYTES}.")
    return load_text(found) if found else plain_text(vocab)


def dataset_files(name: str) -> list[str]:
    """The files of a folder, or of a dataset of the Hugging Face Hub (`org/name`, with a pattern after it for some of
    its files): those for training, where names tell them apart. None where it is neither."""
    repo, pattern = "/".join(name.split("/")[:2]), "/".join(name.split("/")[2:])
    known = hub.hub_name(repo)
    if os.path.isdir(name):
        folder, pattern = Path(name), ""
    elif known and not name.endswith((".bin", ".npy", *ENDINGS)):
        folder = hub.fetch_dataset(known, ENDINGS)
    else:
        return []
    found = sorted(str(one) for one in folder.rglob(pattern or "*") if one.suffix in ENDINGS)
    if not found:
        raise InputError(f"{shorten(name, 200)} has no file of documents; they end in {', '.join(ENDINGS)}.")
    trained = [one for one in found if "train" in os.path.relpath(one, folder)]
    return found if pattern else trained or found


def kept_tokens(source: Path, text: "ModelText", seq: int) -> Path:
    """A file's documents as a file of tokens (int32), made where it is not there yet."""
    first = next(_documents(source), "")
    seen = source.stat()
    about = [BEGINS, source.absolute(), seen.st_size, seen.st_mtime_ns, text.ends, text.tokenizer.to_str()]
    about += [] if isinstance(first, str) else [seq, text.templates]
    key = hashlib.sha256(repr(about).encode()).hexdigest()[:20]
    target = user_cache("tokens") / key / f"{source.name}.bin"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.parent / ".lock", "w") as held:
            wait_for(held.fileno())  # of several processes on a machine one does it
            if not target.exists():
                half = target.with_suffix(".writing")
                with half.open("wb") as file:
                    for ids in _tokenised(source, text, seq, plain=isinstance(first, str)):
                        numpy.asarray(ids, "<i4").tofile(file)
                half.replace(target)
    except OSError as error:
        raise InputError(
            f"The tokens of {shorten(str(source), 200)} cannot be kept in {target.parent}: {error.strerror or error}; "
            "set DRAGONSCALE_CACHE to a folder with room for them."
        ) from None
    return target


def _tokenised(source: Path, text: "ModelText", seq: int, plain: bool) -> Iterator[list[int]]:
    documents = _documents(source)
    if plain:
        while some := list(itertools.islice(documents, _AT_ONCE)):
            for one in text.tokenizer.encode_batch(some):
                whole = [*one.ids, *(text.ends[:1] if one.ids[-1:] != text.ends[:1] else [])]
                yield [at | BEGINS if not place else at for place, at in enumerate(whole)]
        return
    learnt = (conversation_tokens(turns, text) for turns in documents)
    yield from packed(learnt, seq)
    yield [~0]  # the target of the last window's last token


def conversation_tokens(turns: Any, text: "ModelText") -> list[int]:
    """A conversation's tokens; those that the assistant does not say as their complements. Where a template writes
    earlier turns otherwise once there are later ones (without their reasoning), these are not learnt."""
    whole, spans = text.written(turns, generate=False), []
    for at, turn in enumerate(turns):
        if turn["role"] == "assistant":
            before, after = text.written(turns[:at]) if at else "", text.written(turns[: at + 1], generate=False)
            if whole.startswith(before) and whole.startswith(after):
                spans.append(range(len(before), len(after)))
    found = text.tokenizer.encode(whole, add_special_tokens=False)
    said = [any(begin in span for span in spans) for begin, _ in found.offsets]
    ids = [id if mine and at else ~id for at, (id, mine) in enumerate(zip(found.ids, said, strict=True))]
    return [~(~ids[0] | BEGINS), *ids[1:]] if ids else ids


def packed(documents: Iterable[list[int]], seq: int) -> Iterator[list[int]]:
    """Windows of `seq` tokens, of whole documents that are cut where they are longer; one without a token that is
    learnt is left out.

    >>> [sorted(~one for one in window if one < 0) for window in packed([[~1, 5, 5], [~2, 5], [~3, 5]], 5)]
    [[1, 2], [0, 0, 0, 3]]
    """
    windows: list[list[int]] = []
    for ids in documents:
        if max(ids[:seq], default=-1) < 0:
            continue
        room = [window for window in windows if len(window) + len(ids) <= seq]
        if room:
            max(room, key=len).extend(ids)
        else:
            windows.append(ids[:seq])
        if len(windows) > OPEN:
            fullest = max(range(len(windows)), key=lambda at: len(windows[at]))
            yield _padded(windows.pop(fullest), seq)
    yield from (_padded(window, seq) for window in windows)


def _padded(window: list[int], seq: int) -> list[int]:
    return window + [~0] * (seq - len(window))


def _documents(source: Path) -> Iterator[Any]:
    """Each document of a file: its text, or the turns of a conversation; all are of one kind."""
    kinds: set[type] = set()
    for number, row in enumerate(_rows(source), 1):
        found = document_of(row)
        kinds.add(type(found))
        if found is None or len(kinds) > 1:
            keys = ", ".join(list(row)[:8]) if isinstance(row, dict) else shorten(row)
            raise InputError(
                f"Row {number:,} of {shorten(str(source), 200)} has {keys}; each row of a file has a text, or each has "
                "messages or a prompt and its completion."
            )
        yield found


def document_of(row: Any) -> str | list[dict[str, Any]] | None:
    """The document of a row by the names of its fields; None where it has none of them.

    >>> document_of({"instruction": "Add.", "input": "1 1", "output": "2"})
    [{'role': 'user', 'content': 'Add.\\n\\n1 1'}, {'role': 'assistant', 'content': '2'}]
    """
    row = row if isinstance(row, dict) else {}
    turns = row.get("messages") or row.get("conversations")
    for asked, answer in PAIRS:
        prompt, end = row.get(asked), row.get(answer)
        if isinstance(prompt, list) and isinstance(end, list):
            turns = [*prompt, *end]
        elif isinstance(prompt, str) and isinstance(end, str):
            more = f"\n\n{row['input']}" if row.get("input") else ""
            turns = [{"role": "user", "content": prompt + more}, {"role": "assistant", "content": end}]
    if isinstance(turns, list) and all(isinstance(one, dict) and isinstance(_speaker(one), str) for one in turns):
        return [_turn(one) for one in turns]
    found = row.get("text", row.get("content"))
    return found if isinstance(found, str) else None


def _speaker(turn: dict[str, Any]) -> Any:
    return turn.get("role") or turn.get("from") or ""


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    who = _speaker(turn)
    return {**turn, "role": ROLES.get(who, who), "content": turn.get("content", turn.get("value"))}


def _rows(source: Path) -> Iterator[Any]:
    try:
        if source.suffix == ".txt":
            yield {"text": source.read_text(encoding="utf-8")}
        elif source.suffix == ".jsonl":
            with source.open(encoding="utf-8") as file:
                yield from (json.loads(line) for line in file if line.strip())
        else:
            yield from _table_rows(source)
    except OSError as error:
        raise InputError(f"{shorten(str(source), 200)} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shorten(str(source), 200)} is not what its ending says: {error}.") from None


def _table_rows(source: Path) -> Iterator[Any]:
    try:
        import pyarrow.ipc as ipc  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(f"To read {shorten(source.name)} pyarrow must be installed: pip install pyarrow.") from None
    batches = parquet.ParquetFile(source).iter_batches(_AT_ONCE) if source.suffix == ".parquet" else None
    for batch in batches or ipc.open_stream(source):
        yield from batch.to_pylist()
