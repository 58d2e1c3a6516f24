"""What clients may ask and what they are told: OpenAI's shapes, with vLLM's extra fields where they mean the same.

A request is read by `msgspec` straight into a typed record, so a wrong type, a number out of its range, a missing
field, broken JSON or broken UTF-8 never reaches the engine, and the OpenAPI schema is made from the same records.
Fields that nobody knows are refused, as OpenAI's server does: they are mostly slips of the pen, whose answer would not
be what was asked for. What is known and not offered (`suffix`, a forced tool) is refused too, but for fields that say
who asks and the like (`IGNORED`). `null` stands for a field that was not given. Every refusal is one sentence, in
OpenAI's envelope.

The server's paths are a table, and their description as OpenAPI is made of it and of the records that are read. Of
answers it says which keys they have; OpenAI's own description has the rest.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from dragonscale.errors import cut_words
from dragonscale.runtime.serve.requests import Sampling

Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Logprobs = Annotated[int, Meta(ge=0, le=20)]
Stop = Annotated[str, Meta(min_length=1, max_length=1000)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Filled = Annotated[str, Meta(min_length=1)]
Prompt = Filled | Annotated[list[Filled | Token | Annotated[list[Token], Meta(min_length=1)]], Meta(min_length=1)]
Record = TypeVar("Record")


class ApiError(Exception):
    """A refusal or a failure as the client hears it: a status, one sentence, and the field that it is about."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, retry_after: float = 0
    ) -> None:
        message = cut_words(message)
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry_after = status, message, param, code, retry_after

    @property
    def body(self) -> bytes:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status) or ("invalid_request_error" if self.status < 500 else "server_error")
        about = {"message": self.message, "type": kind, "param": self.param, "code": self.code or str(self.status)}
        return msgspec.json.encode({"error": about})

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(max(1, math.ceil(self.retry_after)))} if self.retry_after else {}


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class NamedSchema(msgspec.Struct, rename={"schema_": "schema"}):
    schema_: dict[str, Any] | None = None


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class StructuredOutputs(msgspec.Struct):
    """vLLM's form of a constraint: exactly one of its fields."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None
    grammar: str | None = None
    json_object: bool | None = None


IGNORED = (
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention priority request_id "
    "reasoning_effort verbosity parallel_tool_calls"
)
"""Fields of OpenAI's and vLLM's that say who asks, how soon, or how a model should think."""
_Ignored = msgspec.defstruct("_Ignored", [(name, Any, None) for name in IGNORED.split()], kw_only=True)


class GenerationFields(_Ignored, kw_only=True, forbid_unknown_fields=True):
    """What chat and plain completions have in common. `timeout` is in seconds."""

    model: str | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    logit_bias: dict[Token, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=64)] | None = None
    stop_token_ids: Annotated[list[Token], Meta(max_length=64)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Meta(min_length=1)] | None = None
    guided_grammar: str | None = None
    timeout: Seconds | None = None


class CompletionRequest(GenerationFields, kw_only=True):
    prompt: Prompt
    echo: bool | None = None
    logprobs: Logprobs | None = None
    best_of: int | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None


NOT_OFFERED = {
    "tool_choice": "tools reach the template, a call cannot be forced",
    "].type": "parts are text, pictures and sound are not read",
}
"""What stands behind a field that takes less than OpenAI's does."""


class ContentPart(msgspec.Struct):
    type: Literal["text"]
    text: str


class ChatMessage(msgspec.Struct, omit_defaults=True):
    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


Messages = Annotated[list[ChatMessage], Meta(min_length=1)]


class ChatRequest(GenerationFields, kw_only=True):
    messages: Messages
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class EmbeddingRequest(_Ignored, kw_only=True, forbid_unknown_fields=True):
    input: Prompt
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Count | None = None
    timeout: Seconds | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Either a `prompt` or `messages`."""

    prompt: str | None = None
    messages: Messages | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    model: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    tokens: list[Token]
    model: str | None = None


def read(body: bytes, kind: type[Record]) -> Record:
    """A request's body as a record, or one sentence about what is wrong with it.

    >>> read(b'{"prompt": "a", "temperature": 3}', CompletionRequest)
    Traceback (most recent call last):
    dragonscale.runtime.server.protocol.ApiError: The field `temperature` is wrong: expected `float` <= 2.0.
    >>> read(b'{"prompt": "a", "max_token": 3}', CompletionRequest)
    Traceback (most recent call last):
    dragonscale.runtime.server.protocol.ApiError: The body is wrong: object contains unknown field `max_token`.
    >>> read(b'{"prompt": "a", "n": NaN}', CompletionRequest)
    Traceback (most recent call last):
    dragonscale.runtime.server.protocol.ApiError: The body is not JSON: JSON is malformed: invalid character (byte 21).
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at ")
        field = re.search(r"\$\.?([^`]*)", at)
        where = f"The field `{field[1]}`" if field else "The body"
        missing = next((why for end, why in NOT_OFFERED.items() if field and field[1].endswith(end)), "")
        said = f"{said}; {missing}" if missing else said
        raise ApiError(400, f"{where} is wrong: {said[:1].lower()}{said[1:]}.", field and field[1]) from None
    except RecursionError:
        raise ApiError(400, "The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"The body is not JSON: {error}.") from None


def prompts_of(prompt: Prompt, field: str) -> list[str] | list[list[int]]:
    """One prompt or many, as texts or as token ids.

    >>> prompts_of("a", "prompt"), prompts_of([1, 2], "prompt"), prompts_of([[1], [2]], "prompt")
    (['a'], [[1, 2]], [[1], [2]])
    """
    if isinstance(prompt, str):
        return [prompt]
    kinds = {type(each) for each in prompt}
    if len(kinds) != 1:
        said = f"`{field}` is a text, a list of texts, a list of token ids or a list of such lists."
        raise ApiError(400, said, field)
    return [prompt] if kinds == {int} else prompt  # pyright: ignore[reportReturnType]


def grammar_of(request: GenerationFields) -> tuple[str, str] | None:
    """The one constraint of a request's output, as its kind and its text."""

    form, outputs = request.response_format, request.structured_outputs or StructuredOutputs()
    kind = form.type if form else "text"
    schema = form.json_schema.schema_ if form and form.json_schema and kind == "json_schema" else None
    if kind == "json_schema" and schema is None:
        raise ApiError(400, "`response_format` of type `json_schema` needs `json_schema.schema`.", "response_format")
    asked = {
        "json_schema": (schema, request.guided_json, outputs.json),
        "regex": (request.guided_regex, outputs.regex),
        "json_object": ("" if kind == "json_object" or outputs.json_object else None,),
        "choice": (request.guided_choice, outputs.choice),
        "lark": (request.guided_grammar, outputs.grammar),
    }
    given = [(kind, one) for kind, every in asked.items() for one in every if one is not None]
    if len(given) > 1:
        raise ApiError(400, "The output can be held to one constraint only: one schema, regex, choice or grammar.")
    texts = [(kind, one if isinstance(one, str) else msgspec.json.encode(one).decode()) for kind, one in given]
    return texts[0] if texts else None


_SAMPLED = {name: name for name in ("temperature", "top_k", "top_p", "min_p", "seed")}
_SAMPLED |= {f"{own}_penalty": own for own in ("presence", "frequency", "repetition")} | {"logit_bias": "bias"}
"""Fields of a request that say how tokens are chosen, and what they are called in `Sampling`."""


def sampling_of(request: GenerationFields, logprobs: int | None, recommended: Mapping[str, float]) -> Sampling:
    """How a request wants its tokens chosen; what it does not say is as the model's makers recommend, or OpenAI's
    default."""
    said = {own: getattr(request, name) for name, own in _SAMPLED.items() if getattr(request, name) is not None}
    given: dict[str, Any] = {own: recommended[name] for name, own in _SAMPLED.items() if name in recommended} | said
    given["top_k"] = max(0, int(given.get("top_k", 0)))
    return Sampling(**given, logprobs=logprobs, grammar=grammar_of(request))


class Endpoint(NamedTuple):
    """A path: the method of `OpenAIService` that handles it, the record that it takes, the keys that its answer has."""

    method: str
    path: str
    handler: str
    takes: type[msgspec.Struct] | None
    gives: str
    says: str


_ANSWER = "id object created model choices usage"
ENDPOINTS = (
    Endpoint("POST", "/v1/chat/completions", "chat", ChatRequest, _ANSWER, "The next message of a conversation"),
    Endpoint("POST", "/v1/completions", "completions", CompletionRequest, _ANSWER, "The text that follows a prompt"),
    Endpoint("POST", "/v1/embeddings", "embeddings", EmbeddingRequest, "object data model usage", "Texts as vectors"),
    Endpoint("GET", "/v1/models", "models", None, "object data", "The model that is served"),
    Endpoint("GET", "/v1/models/{model:path}", "model", None, "id object created owned_by", "About a model"),
    Endpoint("POST", "/tokenize", "tokenize", TokenizeRequest, "count max_model_len tokens", "A text's tokens"),
    Endpoint("POST", "/detokenize", "detokenize", DetokenizeRequest, "prompt", "The text of tokens"),
    Endpoint("GET", "/tokenizer_info", "tokenizer_info", None, "eos_token chat_template", "Special tokens, template"),
    Endpoint("GET", "/health", "health", None, "status", "Whether the server lives"),
    Endpoint("GET", "/ready", "ready", None, "status", "Whether it takes requests"),
    Endpoint("GET", "/metrics", "numbers", None, "", "Numbers for Prometheus"),
    Endpoint("GET", "/version", "about", None, "version", "The version of Dragonscale"),
    Endpoint("GET", "/openapi.json", "schema", None, "openapi paths", "This description"),
)


def openapi(models: Sequence[str], version: str) -> dict[str, Any]:
    """The description of a server of a model and its adapters."""
    kinds = [one.takes for one in ENDPOINTS if one.takes]
    refs, parts = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for part in parts.values():
        part.get("properties", {}).get("model", {}).update(enum=[*models, None])
    failed = _has("error") | {"properties": {"error": _has("message type param code")}}
    paths: dict[str, Any] = {}
    for one in ENDPOINTS:
        content = _json(_has(one.gives)) if one.gives else {"text/plain": {}}
        content |= {"text/event-stream": {}} if one.gives == _ANSWER else {}
        answers = {"200": {"description": one.says, "content": content}}
        answers["default"] = {"description": "What is wrong, in one sentence", "content": _json(failed)}
        about: dict[str, Any] = {"summary": one.says, "responses": answers}
        if one.takes:
            about["requestBody"] = {"required": True, "content": _json(refs[kinds.index(one.takes)])}
        if "{" in one.path:
            name = {"type": "string", "minLength": 1}
            about["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": name}]
        paths.setdefault(one.path.replace(":path", ""), {})[one.method.lower()] = about
    info = {"title": "Dragonscale", "version": version}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": parts}}


def _has(keys: str) -> dict[str, Any]:
    return {"type": "object", "required": keys.split()}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
