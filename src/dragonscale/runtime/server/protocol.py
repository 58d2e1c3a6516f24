"""What clients may ask and what they are told: OpenAI's shapes, with vLLM's extra fields where they mean the same.

A request is read by `msgspec` straight into a typed record, so a wrong type, a number out of its range, a missing
field, broken JSON or broken UTF-8 never reaches the engine, and the OpenAPI schema is made from the same records.
Fields that nobody knows are ignored: OpenAI's own clients send new ones all the time. What is known and not offered
(`suffix`, a forced tool) is refused. `null` stands for a field that was not given. Every refusal is one sentence, in
OpenAI's envelope.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

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


class GenerationFields(msgspec.Struct, kw_only=True):
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


class EmbeddingRequest(msgspec.Struct, kw_only=True):
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
        raise ApiError(
            400, f"`{field}` is a text, a list of texts, a list of token ids or a list of such lists.", field
        )
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
    return next(
        ((kind, one if isinstance(one, str) else msgspec.json.encode(one).decode()) for kind, one in given), None
    )


def sampling_of(request: GenerationFields, logprobs: int | None, recommended: Mapping[str, float]) -> Sampling:
    """How a request wants its tokens chosen; what it does not say is as the model's makers recommend, or OpenAI's
    default."""

    def said(name: str, default: float) -> float:
        given = getattr(request, name)
        return recommended.get(name, default) if given is None else given

    return Sampling(
        temperature=said("temperature", 1.0),
        top_k=max(0, int(said("top_k", 0))),
        top_p=said("top_p", 1.0),
        min_p=said("min_p", 0.0),
        presence=request.presence_penalty or 0.0,
        frequency=request.frequency_penalty or 0.0,
        repetition=said("repetition_penalty", 1.0),
        seed=request.seed,
        logprobs=logprobs,
        bias=request.logit_bias or {},
        grammar=grammar_of(request),
    )
