"""Files that benchmarks of servers and collections of conversations are kept in, read as requests with their lengths.

| file | what of it is read | from |
|---|---|---|
| `vllm bench serve --save-result --save-detailed`, SGLang's `bench_serving --output-details` | `input_lens`, `output_lens`, `start_times` where it has them | vllm/benchmarks/serve.py, sglang/bench_serving.py |
| GuideLLM `benchmarks.json` | `requests.successful`: `prompt_tokens`, `output_tokens`, `request_start_time` | guidellm's GenerativeRequestStats |
| AIPerf `profile_export.jsonl` | `request_start_ns`, `input_sequence_length`, `output_sequence_length` | docs/tutorials/working-with-profile-exports.md |
| GenAI-Perf `profile_export.json` | `timestamp`, texts of payloads and responses | genai_perf's LLMProfileDataParser |
| inference-perf `per_request_lifecycle_metrics.json` | `start_time`, `info.input_tokens`, `info.output_tokens` | inference_perf's report generator |
| ShareGPT | texts of `conversations` (or `messages`), JSON or JSON lines | ShareGPT_V3_unfiltered_cleaned_split.json |

Where a file has texts and no counts, tokens are estimated from characters.
"""  # noqa: E501  a table

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from dragonscale.errors import InputError

HEAD = 10_000
"""Characters of a first line that tell what a file is."""
ASCII_TOKENS = 1 / 4
"""Tokens of a character of English: OpenAI's rule of thumb, four characters for a token."""
OTHER_TOKENS = 0.6
"""Tokens of a character outside ASCII (https://api-docs.deepseek.com/quick_start/token_usage, of Chinese)."""
ESTIMATED = "tokens estimated from its texts, four characters of English for one"


class BenchmarkRequest(NamedTuple):
    """A request of a file: when it was sent (None where the file does not say), its prompt and output in tokens, and
    the tokens of its whole conversation."""

    arrival_s: float | None
    input_tokens: int
    output_tokens: int
    whole_tokens: int


@dataclass(frozen=True)
class BenchmarkFile:
    """What a file was read as, and its requests in the order in which they were sent."""

    title: str
    requests: tuple[BenchmarkRequest, ...]
    detail: str = ""

    @property
    def has_times(self) -> bool:
        return all(request.arrival_s is not None for request in self.requests)

    @property
    def note(self) -> str:
        detail = f"; {self.detail}" if self.detail else ""
        return f"Read as {self.title}: {len(self.requests):,} requests{detail}."


def may_be_benchmark(head: str) -> bool:
    """Whether a file that begins so may be one of these: JSON that is neither a trace nor a list of lengths.

    >>> (
    ...     may_be_benchmark('{"date": "20260101", "input_lens": [3]}'),
    ...     may_be_benchmark('{"timestamp": 0, "input_length": 3'),
    ... )
    (True, False)
    """
    # a mark of the encoding may stand before the text
    begin = head.lstrip("\ufeff \t\r\n")
    others = [f'"{key}":' for key in ("input_length", "input_ids", "length", "tokens", "num_tokens", "n_tokens")]
    return begin.startswith(("{", "[")) and not any(key in head.replace('" :', '":') for key in others)


def parse_benchmark(text: str, name: str) -> BenchmarkFile | None:
    """The requests of a file's text; None where it is no file of these kinds. `name` is how messages call it."""
    # the objects of the file: the first tells the kind
    documents = _documents(text)
    if not documents:
        return None
    for kind in KINDS:
        if kind.is_one(documents[0]):
            break
    else:
        return None
    try:
        requests = [request for request in kind.read(documents) if min(request[1:]) > 0]
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise InputError(f"{name} looks like {kind.title} and cannot be read as one: {error}.") from None
    if not requests:
        raise InputError(f"{name} is {kind.title} without any request whose lengths it has{kind.lacking}.")
    # as they were sent: some files have them in the order in which they ended
    if all(request.arrival_s is not None for request in requests):
        requests.sort(key=lambda request: request.arrival_s or 0.0)
    return BenchmarkFile(kind.title, tuple(requests), kind.detail)


def _documents(text: str) -> list[Any]:
    """The JSON of a file: the items of a list, one object, or an object a line; empty where it is no JSON."""
    # one document, or an object a line
    try:
        whole = msgspec.json.decode(text)
        return whole if isinstance(whole, list) else [whole]
    except msgspec.DecodeError:
        pass
    try:
        return [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
    except msgspec.DecodeError:
        return []


def estimated_tokens(text: str) -> int:
    """Tokens of a text, roughly.

    >>> estimated_tokens("What is the capital of France?"), estimated_tokens("法国的首都是什么")
    (8, 5)
    """
    # characters that English is written in
    plain = sum(map(str.isascii, text))
    return math.ceil(plain * ASCII_TOKENS + (len(text) - plain) * OTHER_TOKENS)


class _Result(msgspec.Struct):
    input_lens: list[int] = []
    output_lens: list[int] = []
    start_times: list[float] | None = None


def _results(documents: list[Any]) -> Iterator[BenchmarkRequest]:
    """The last run of a file that runs were appended to."""
    run = msgspec.convert(documents[-1], _Result, strict=False)
    # older releases write no times
    times: Iterable[float | None] = run.start_times or [None] * len(run.input_lens)
    for prompt, output, time in zip(run.input_lens, run.output_lens, times, strict=True):
        yield BenchmarkRequest(time, prompt, output, prompt + output)


@dataclass(frozen=True)
class RecordPaths:
    """Where the records of requests are in a file, and in each record its lengths and the time when it was sent: keys
    with dots between. Of several `times` the first that a record has; `second` is a second in their unit."""

    prompt: str
    output: str
    times: tuple[str, ...]
    second: float = 1.0
    lists: str = ""
    """The key of a list of objects with lists of records; records stand in the file itself without it."""
    records: str = ""

    def __call__(self, documents: list[Any]) -> Iterator[BenchmarkRequest]:
        records = documents
        # a report of several benchmarks, each with its requests
        if self.lists:
            records = []
            for part in _list_at(documents[0], self.lists):
                records += _list_at(part, self.records)
        for record in records:
            prompt, output = _at(record, self.prompt), _at(record, self.output)
            # a request that failed, or warmed the server up, has no lengths that count
            if not prompt or not output or _at(record, "error") or _at(record, "metadata.benchmark_phase") == "warmup":
                continue
            time = next((at for path in self.times if (at := _at(record, path)) is not None), None)
            arrival_s = None if time is None else msgspec.convert(time, float, strict=False) / self.second
            # lengths are averages of one, with a point, in some files
            prompt = round(msgspec.convert(prompt, float, strict=False))
            output = round(msgspec.convert(output, float, strict=False))
            yield BenchmarkRequest(arrival_s, prompt, output, prompt + output)


def _at(record: Any, path: str) -> Any:
    """What stands at keys with dots between; None where there is nothing.

    >>> _at({"info": {"input_tokens": 3}}, "info.input_tokens"), _at({"info": None}, "info.input_tokens")
    (3, None)
    """
    for key in path.split("."):
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


def _list_at(record: Any, path: str) -> list[Any]:
    """The list that stands at keys with dots between; empty where there is none."""
    value = _at(record, path)
    return value if isinstance(value, list) else []


_GUIDELLM = RecordPaths(
    prompt="prompt_tokens",
    output="output_tokens",
    # its name differs between releases, the newest first
    times=("request_start_time", "start_time", "scheduler_info.request_timings.request_start"),
    lists="benchmarks",
    records="requests.successful",
)
_AIPERF = RecordPaths(
    prompt="metrics.input_sequence_length.value",
    output="metrics.output_sequence_length.value",
    times=("metadata.request_start_ns",),
    second=1e9,
)
_INFERENCE_PERF = RecordPaths(prompt="info.input_tokens", output="info.output_tokens", times=("start_time",))


class _Turn(msgspec.Struct):
    value: str | None = None
    content: Any = None


class _Conversation(msgspec.Struct):
    conversations: list[_Turn] = []
    messages: list[_Turn] = []


def _conversations(documents: list[Any]) -> Iterator[BenchmarkRequest]:
    """The first two turns are the prompt and its answer, as benchmarks of servers take them."""
    for conversation in msgspec.convert(documents, list[_Conversation], strict=False):
        turns = [turn.value or str(turn.content or "") for turn in conversation.conversations or conversation.messages]
        # a question that nobody answered is no request
        if len(turns) >= 2:
            tokens = list(map(estimated_tokens, turns))
            yield BenchmarkRequest(None, tokens[0], tokens[1], sum(tokens))


class _GenaiRequest(msgspec.Struct):
    timestamp: int
    request_inputs: dict[str, Any] = {}
    response_outputs: list[dict[str, Any]] = []


class _GenaiExperiment(msgspec.Struct):
    requests: list[_GenaiRequest] = []


class _GenaiProfile(msgspec.Struct):
    experiments: list[_GenaiExperiment]


def _genai_perf(documents: list[Any]) -> Iterator[BenchmarkRequest]:
    for experiment in msgspec.convert(documents[0], _GenaiProfile, strict=False).experiments:
        for request in experiment.requests:
            prompt = estimated_tokens(_texts_of(request.request_inputs.get("payload", "")))
            output = sum(estimated_tokens(_texts_of(part.get("response", ""))) for part in request.response_outputs)
            yield BenchmarkRequest(request.timestamp / 1e9, prompt, output, prompt + output)


def _texts_of(payload: Any) -> str:
    """The contents of an OpenAI request, or of a response or a part of one that is streamed."""
    try:
        value = json.loads(str(payload).removeprefix("data:").strip() or "{}")
    except ValueError:  # the end of a stream, `data: [DONE]`, says nothing
        return ""
    parts = [value, *_list_at(value, "messages")]
    # a whole answer has messages, a stream deltas
    for choice in _list_at(value, "choices"):
        parts += [_at(choice, "message") or _at(choice, "delta") or choice]
    texts = [str(_at(part, key) or "") for part in parts for key in ("content", "text", "prompt")]
    return " ".join(filter(None, texts))


@dataclass(frozen=True)
class FileKind:
    """A kind of file: what it is called, the keys that tell it, how its requests are read, what of it is said besides,
    and why it may have none."""

    title: str
    keys: frozenset[str]
    read: Callable[[list[Any]], Iterator[BenchmarkRequest]]
    detail: str = ""
    lacking: str = ""

    def is_one(self, document: Any) -> bool:
        return isinstance(document, dict) and self.keys <= document.keys()


_SERVER = "a result of vLLM's or SGLang's serving benchmark"
KINDS = (
    FileKind(_SERVER, frozenset({"input_lens", "output_lens"}), _results),
    FileKind(
        _SERVER,
        frozenset({"request_throughput", "duration"}),
        _results,
        lacking="; run the benchmark with --save-detailed (vLLM) or --output-details (SGLang)",
    ),
    FileKind("a report of GuideLLM", frozenset({"benchmarks"}), _GUIDELLM),
    FileKind("an export of AIPerf", frozenset({"metadata", "metrics"}), _AIPERF),
    FileKind("an export of GenAI-Perf", frozenset({"experiments"}), _genai_perf, ESTIMATED),
    FileKind("requests of inference-perf", frozenset({"start_time", "info"}), _INFERENCE_PERF),
    FileKind("conversations of ShareGPT", frozenset({"conversations"}), _conversations, ESTIMATED),
    FileKind("conversations", frozenset({"messages"}), _conversations, ESTIMATED),
)
"""The first whose keys the first object of a file has."""
