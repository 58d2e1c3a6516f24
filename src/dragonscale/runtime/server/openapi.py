"""The server's paths, and their description as OpenAPI: made from the records that are read, so that it cannot be
another.

Of answers it says which keys they have; OpenAI's own description has the rest.
"""

from typing import Any, NamedTuple

import msgspec

from dragonscale.runtime.server import protocol


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
    Endpoint(
        "POST", "/v1/chat/completions", "chat", protocol.ChatRequest, _ANSWER, "The next message of a conversation"
    ),
    Endpoint(
        "POST", "/v1/completions", "completions", protocol.CompletionRequest, _ANSWER, "The text that follows a prompt"
    ),
    Endpoint(
        "POST", "/v1/embeddings", "embeddings", protocol.EmbeddingRequest, "object data model usage", "Texts as vectors"
    ),
    Endpoint("GET", "/v1/models", "models", None, "object data", "The model that is served"),
    Endpoint("GET", "/v1/models/{model:path}", "model", None, "id object created owned_by", "About a model"),
    Endpoint(
        "POST", "/tokenize", "tokenize", protocol.TokenizeRequest, "count max_model_len tokens", "A text's tokens"
    ),
    Endpoint("POST", "/detokenize", "detokenize", protocol.DetokenizeRequest, "prompt", "The text of tokens"),
    Endpoint("GET", "/health", "health", None, "status", "Whether the server lives"),
    Endpoint("GET", "/ready", "ready", None, "status", "Whether it takes requests"),
    Endpoint("GET", "/metrics", "numbers", None, "", "Numbers for Prometheus"),
    Endpoint("GET", "/version", "about", None, "version", "The version of Dragonscale"),
    Endpoint("GET", "/openapi.json", "schema", None, "openapi paths", "This description"),
)


def openapi(model: str, version: str) -> dict[str, Any]:
    """The description of a server of this model."""
    kinds = [one.takes for one in ENDPOINTS if one.takes]
    refs, parts = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for part in parts.values():
        part.get("properties", {}).get("model", {}).update(enum=[model, None])
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
