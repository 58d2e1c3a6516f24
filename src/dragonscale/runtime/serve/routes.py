"""The routes of the OpenAI-compatible server: what is asked is read and checked, made into sequences of tokens, and answered.

A body is read piece by piece within bounds (its size, its time). What an engine would refuse is refused here, before anything is
queued: a prompt too long, token ids beyond the vocabulary, a constraint that cannot be read.
"""

import asyncio
import base64
import re
import struct
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragonscale.errors import shorten
from dragonscale.runtime.serve.answers import ChoiceAnswer, EventStream, Generation
from dragonscale.runtime.serve.metrics import ServerMetrics
from dragonscale.runtime.serve.protocol import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    GenerationFields,
    TokenizeRequest,
    openapi,
    prompts_of,
    read,
    sampling_of,
)  # fmt: skip
from dragonscale.runtime.serve.requests import Sampling, ServeRequest
from dragonscale.runtime.serve.text import ModelText, TextStream


def log_line(line: dict[str, Any]) -> None:
    sys.stderr.write(msgspec.json.encode(line).decode() + "\n")


@dataclass(frozen=True)
class HttpSettings:
    """What is served, to whom, and the bounds: `length` tokens in a sequence, `vocabulary` token ids, `choices` in a request;
    bytes of a body and of an answer that is not read; seconds of a request, of its headers and body, of idle connections, of grace."""

    model: str
    length: int
    vocabulary: int
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str = ""
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    choices: int = 1024
    body_bytes: int = 16 << 20
    unread_bytes: int = 1 << 20
    deadline_s: float = 3600.0
    arrival_s: float = 30.0
    idle_s: float = 30.0
    grace_s: float = 30.0
    prompt_logprobs: bool = True
    log: Callable[[dict[str, Any]], None] = field(default=log_line)


class OpenAIService:
    """The routes, over a front and a model's text. `under_way` are generations that run, `draining` refuses new ones."""

    def __init__(self, front: Any, text: ModelText, settings: HttpSettings) -> None:
        self.front, self.text, self.settings = front, text, settings
        self.metrics = ServerMetrics(settings.model, front.stats)
        self.draining, self.created = False, int(time.time())
        self.under_way: set[Generation] = set()

    # What is asked

    async def body(self, request: Request, kind: type[Any]) -> Any:
        """The request's body, read piece by piece within its bounds, as a record."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "The body has to be JSON, with the header `content-type: application/json`.")
        most, body = self.settings.body_bytes, bytearray()
        declared = request.headers.get("content-length", "")
        too_large = ApiError(413, f"The body is larger than {most} bytes.")
        if declared.isdigit() and int(declared[:20]) > most:
            raise too_large
        try:
            async with asyncio.timeout(self.settings.arrival_s):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise ApiError(408, f"The body did not arrive within {self.settings.arrival_s:g} s.") from None
        asked = read(bytes(body), kind)
        if asked.model and asked.model != self.settings.model:
            said = f"There is no model {shorten(asked.model)} here, only {shorten(self.settings.model)}."
            raise ApiError(404, said, "model", "model_not_found")
        return asked

    async def tokens(self, prompt: str | list[int], special: bool = True) -> list[int]:
        """A prompt's tokens, known to the model and not too many."""
        most = self.settings.vocabulary - 1
        if isinstance(prompt, str):  # a long text is tokenized beside the event loop: other streams go on
            long = len(prompt) > 20_000
            ids = (
                await asyncio.to_thread(self.text.encode, prompt, special)
                if long
                else self.text.encode(prompt, special)
            )
        else:
            ids = prompt
        if not ids or max(ids) > most:
            raise ApiError(
                400, "The prompt has no token." if not ids else f"The prompt has token ids beyond {most}, the last one."
            )
        if len(ids) >= self.settings.length:
            said = f"The prompt has {len(ids)} tokens, and the model takes {self.settings.length - 1} at most."
            raise ApiError(400, said, code="context_length_exceeded")
        return ids

    def limits(self, request: Request, timeout: float | None) -> float:
        """Seconds that a request may take: the least of what its header, its body and the server say."""
        given = request.headers.get("x-request-timeout", "")
        if given and not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", given):
            raise ApiError(400, f"The header `x-request-timeout` is a number of seconds, not {shorten(given)}.")
        return min(timeout or 1e9, float(given or 1e9), self.settings.deadline_s)

    def sequences(
        self,
        asked: GenerationFields,
        prompt: list[int],
        sampling: Sampling,
        most: int | None,
        seconds: float,
        **more: Any,
    ) -> list[ServeRequest]:
        """The choices that are asked of one prompt."""
        room = self.settings.length - len(prompt)
        if most is not None and most > room:
            said = f"The prompt has {len(prompt)} tokens and {most} are asked for: the model takes {self.settings.length} together."
            raise ApiError(400, said, "max_tokens", "context_length_exceeded")
        if (asked.min_tokens or 0) > (most or room):
            raise ApiError(400, "`min_tokens` is more than `max_tokens`.", "min_tokens")
        now, ends = time.time(), [*(asked.stop_token_ids or []), *([] if asked.ignore_eos else self.text.ends)]
        return [
            ServeRequest(
                id=uuid.uuid4().hex, prompt=prompt, length=most or room, least=asked.min_tokens or 0, ends=ends, arrived=now,
                sampling=msgspec.structs.replace(sampling, seed=sampling.seed + at) if sampling.seed is not None and at else sampling,
                deadline=now + seconds, **more,
            )
            for at in range(asked.n or 1)
        ]  # fmt: skip

    # Generation

    async def chat(self, request: Request) -> Response:
        asked: ChatRequest = await self.body(request, ChatRequest)
        if asked.top_logprobs and not asked.logprobs:
            raise ApiError(400, "`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
        prompt = self.conversation(
            asked.messages,
            asked.tools if asked.tool_choice != "none" else None,
            asked.add_generation_prompt,
            asked.chat_template_kwargs,
        )
        logprobs = asked.top_logprobs or 0 if asked.logprobs else None
        seconds = self.limits(request, asked.timeout)
        sampling = sampling_of(asked, logprobs, self.text.sampling)
        most = asked.max_completion_tokens or asked.max_tokens
        made = self.sequences(asked, await self.tokens(prompt), sampling, most, seconds)
        return await self.answer(request, asked, made, seconds, chat=True)

    async def completions(self, request: Request) -> Response:
        asked: CompletionRequest = await self.body(request, CompletionRequest)
        if asked.suffix:
            raise ApiError(400, "`suffix` is not offered: models here write what follows a prompt.", "suffix")
        if asked.best_of is not None and asked.best_of != (asked.n or 1):
            raise ApiError(400, "`best_of` is not offered beyond `n`.", "best_of")
        told = asked.logprobs if asked.echo else None
        if told is not None and not self.settings.prompt_logprobs:
            raise ApiError(400, "`echo` with `logprobs` is not offered by this engine.", "echo")
        prompts = prompts_of(asked.prompt, "prompt")
        if len(prompts) * (asked.n or 1) > self.settings.choices:
            raise ApiError(400, f"A request may have {self.settings.choices} choices at most.", "n")
        sampling, seconds = sampling_of(asked, asked.logprobs, self.text.sampling), self.limits(request, asked.timeout)
        made: list[ServeRequest] = []
        for one in prompts:
            ids = await self.tokens(one, special=asked.add_special_tokens is not False)
            most = asked.max_tokens or min(16, self.settings.length - len(ids))
            made += self.sequences(asked, ids, sampling, most, seconds, prompt_logprobs=told)
        return await self.answer(request, asked, made, seconds, chat=False, echo=bool(asked.echo))

    def conversation(
        self, messages: list[Any], tools: Any, generate: bool | None, more: dict[str, Any] | None
    ) -> list[int]:
        given = {
            name: value for name, value in (more or {}).items() if name not in ("messages", "tools", "generate", "self")
        }
        return self.text.chat([msgspec.to_builtins(one) for one in messages], tools, generate is not False, **given)

    async def answer(
        self,
        request: Request,
        asked: GenerationFields,
        made: list[ServeRequest],
        seconds: float,
        chat: bool,
        echo: bool = False,
    ) -> Response:
        """Generate, as a whole or as a stream."""
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        include, skip = bool(asked.include_stop_str_in_output), asked.skip_special_tokens is not False
        choices = []
        for index, one in enumerate(made):
            stream = TextStream(self.text, one.prompt, stops, one.ends, include, skip)
            said = self.text.decode(one.prompt, skip_special=skip) if echo else ""
            choices.append(ChoiceAnswer(index, one, self.text, stream, chat, said))
        generation = self.generation(request, choices, seconds)
        kind = "chat.completion" if chat else "text_completion"
        about = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{request.state.id}", "object": kind, "created": int(time.time()),
            "model": self.settings.model,
        }  # fmt: skip
        per_prompt = asked.n or 1
        if asked.stream:
            about["object"] = "chat.completion.chunk" if chat else kind
            wanted = asked.stream_options is not None and asked.stream_options.include_usage
            return EventStream(
                generation, about, (lambda: usage(choices, per_prompt)) if wanted else None, self.settings.unread_bytes
            )
        await generation.whole(request.receive)
        told = []
        for choice in choices:
            text, logprobs = choice.content()
            body = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            told.append({"index": choice.index, **body, "logprobs": logprobs, "finish_reason": choice.finish})
        return answer_json({**about, "choices": told, "usage": usage(choices, per_prompt)})

    def generation(self, request: Request, choices: list[ChoiceAnswer], seconds: float) -> Generation:
        if self.draining or not self.front.ready:
            raise ApiError(
                503, "The server is shutting down." if self.draining else "The server is not ready yet.", retry_after=1
            )
        until = asyncio.get_running_loop().time() + seconds
        request.state.generation = made = Generation(self.front, choices, self.metrics, until)
        self.under_way.add(made)
        return made

    async def embeddings(self, request: Request) -> Response:
        asked: EmbeddingRequest = await self.body(request, EmbeddingRequest)
        seconds = self.limits(request, asked.timeout)
        prompts = prompts_of(asked.input, "input")
        if len(prompts) > self.settings.choices:
            raise ApiError(400, f"A request may have {self.settings.choices} inputs at most.", "input")
        choices = []
        for index, prompt in enumerate(prompts):
            ids, now = await self.tokens(prompt), time.time()
            one = ServeRequest(
                id=uuid.uuid4().hex, prompt=ids, length=1, arrived=now, deadline=now + seconds, embed=True
            )
            choices.append(ChoiceAnswer(index, one, self.text, TextStream(self.text, ids), False))
        await self.generation(request, choices, seconds).whole(request.receive)
        packed = asked.encoding_format == "base64"
        rows = [
            {
                "object": "embedding",
                "index": one.index,
                "embedding": as_base64(one.embedding) if packed else one.embedding,
            }
            for one in choices
        ]
        count = sum(len(one.request.prompt) for one in choices)
        usage = {"prompt_tokens": count, "total_tokens": count}
        return answer_json({"object": "list", "data": rows, "model": self.settings.model, "usage": usage})

    # The rest

    async def tokenize(self, request: Request) -> Response:
        asked: TokenizeRequest = await self.body(request, TokenizeRequest)
        if (asked.prompt is None) == (asked.messages is None):
            raise ApiError(400, "Either `prompt` or `messages` is to be given.", "prompt")
        if asked.messages is not None:
            ids = self.conversation(asked.messages, None, asked.add_generation_prompt, None)
        else:
            ids = self.text.encode(asked.prompt or "", asked.add_special_tokens is not False)
        texts = [self.text.token_text(one)[0] for one in ids] if asked.return_token_strs else None
        return answer_json(
            {"count": len(ids), "max_model_len": self.settings.length, "tokens": ids, "token_strs": texts}
        )

    async def detokenize(self, request: Request) -> Response:
        asked: DetokenizeRequest = await self.body(request, DetokenizeRequest)
        return answer_json({"prompt": self.text.decode(asked.tokens, skip_special=False)})

    def card(self) -> dict[str, Any]:
        known = {"max_model_len": self.settings.length, "owned_by": "dragonscale"}
        return {"id": self.settings.model, "object": "model", "created": self.created, **known}

    async def models(self, _: Request) -> Response:
        return answer_json({"object": "list", "data": [self.card()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["model"] != self.settings.model:
            raise ApiError(
                404, f"There is no model {shorten(request.path_params['model'])} here.", "model", "model_not_found"
            )
        return answer_json(self.card())

    async def health(self, _: Request) -> Response:
        return answer_json({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        ok = self.front.ready and not self.draining
        return answer_json(
            {"status": "ready" if ok else "draining" if self.draining else "starting"}, 200 if ok else 503
        )

    async def numbers(self, _: Request) -> Response:
        return Response(self.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def about(self, _: Request) -> Response:
        return answer_json({"version": version("dragonscale")})

    async def schema(self, _: Request) -> Response:
        return answer_json(openapi(self.settings.model, version("dragonscale")))


def answer_json(said: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(said), status, media_type="application/json")


def as_base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def usage(choices: list[ChoiceAnswer], per_prompt: int) -> dict[str, Any]:
    """Tokens in and out; a prompt counts once however many choices it has."""
    prompts, out = choices[::per_prompt], sum(one.tokens for one in choices)
    read, cached = sum(len(one.request.prompt) for one in prompts), sum(one.cached for one in prompts)
    told = {"prompt_tokens": read, "completion_tokens": out, "total_tokens": read + out}
    return {**told, "prompt_tokens_details": {"cached_tokens": cached}}
