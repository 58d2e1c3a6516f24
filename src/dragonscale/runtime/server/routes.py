"""The routes of the OpenAI-compatible server: what is asked is read and checked, made into sequences of tokens, and
answered.

A body is read piece by piece within bounds (its size, its time). What an engine would refuse is refused here, before
anything is queued: a prompt too long, token ids beyond the vocabulary, a constraint that cannot be read.
"""

import asyncio
import base64
import re
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from dragonscale.errors import shorten
from dragonscale.prompt_http import address_key
from dragonscale.runtime.serve.requests import GenerateRequest, Sampling
from dragonscale.runtime.server import protocol
from dragonscale.runtime.server.answers import AnswerStream, ChoiceAnswer, Generation
from dragonscale.runtime.server.grammar_check import GrammarChecker
from dragonscale.runtime.server.grammar_process import Vocabulary
from dragonscale.runtime.server.logs import LogWriter
from dragonscale.runtime.server.metrics import ServerMetrics
from dragonscale.runtime.server.protocol import ApiError, GenerationFields, openapi, prompts_of, read, sampling_of
from dragonscale.runtime.server.text import ModelText, TextStream
from dragonscale.runtime.server.tool_calls import CallReader, marks_of


@dataclass(frozen=True)
class HttpSettings:
    """What is served, to whom, and the bounds: `length` tokens in a sequence, `vocabulary` token ids; bytes of a body
    and of an answer that is not read; `adapters` served beside the model, by name and folder; `root`, where clients
    find its tokenizer; seconds of a request, of its headers and body, of idle connections, of grace."""

    model: str
    length: int
    vocabulary: int
    api_key: str = ""
    hosts: tuple[str, ...] = ()
    adapters: tuple[tuple[str, str], ...] = ()
    root: str = ""
    body_bytes: int = 16 << 20
    unread_bytes: int = 1 << 20
    deadline_s: float = 3600.0
    arrival_s: float = 30.0
    idle_s: float = 30.0
    grace_s: float = 30.0
    log: Callable[[dict[str, Any]], None] = field(default_factory=LogWriter)


class OpenAIService:
    """The routes, over a front and a model's text. `under_way` are generations that run, `draining`
    refuses new ones."""

    def __init__(self, front: Any, text: ModelText, settings: HttpSettings) -> None:
        self.front, self.text, self.settings = front, text, settings
        self.metrics = ServerMetrics(settings.model, front.stats)
        self.draining, self.created = False, int(time.time())
        self.names = (settings.model, *(name for name, _ in settings.adapters))
        self.under_way: set[Generation] = set()
        self.grammars = GrammarChecker(Vocabulary(text.tokenizer.to_str(), settings.vocabulary, text.ends))

    def close(self) -> None:
        """End what the service itself has started."""
        self.grammars.close()

    # What is asked

    async def body(self, request: Request, kind: type[protocol.Record]) -> protocol.Record:
        """The request's body, read piece by piece within its bounds, as a record."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "The body has to be JSON, with the header `content-type: application/json`.")
        most, body = self.settings.body_bytes, bytearray()
        declared = request.headers.get("content-length", "")
        try:
            async with asyncio.timeout(self.settings.arrival_s):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most or (declared.isdigit() and int(declared[:20]) > most):
                        raise ApiError(413, f"The body is larger than {most} bytes.")
        except TimeoutError:
            raise ApiError(408, f"The body did not arrive within {self.settings.arrival_s:g} s.") from None
        asked = read(bytes(body), kind)
        self.number(getattr(asked, "model", None))
        return asked

    def number(self, model: str | None) -> int:
        """Which adapter answers to a model's name: 0 for the model itself, which also answers where none is named."""
        if (model or self.names[0]) not in self.names:
            said = f"There is no model {shorten(str(model))} here, only {', '.join(map(shorten, self.names))}."
            raise ApiError(404, said, "model", "model_not_found")
        return self.names.index(model or self.names[0])

    async def prompts(self, given: protocol.Prompt, field: str, special: bool = True) -> list[list[int]]:
        """Prompts as tokens that the model knows, none too long."""
        prompts = prompts_of(given, field)

        def tokens() -> list[list[int]]:
            every = (self.text.encode(one, special) if isinstance(one, str) else one for one in prompts)
            return [self.fitting(one, field) for one in every]

        # What is long goes beside the event loop: other streams go on.
        return tokens() if sum(map(len, prompts)) < 20_000 else await asyncio.to_thread(tokens)

    def fitting(self, ids: list[int], field: str) -> list[int]:
        last, length = self.settings.vocabulary - 1, self.settings.length
        if not ids or max(ids) > last:
            said = f"The prompt has token ids beyond {last}." if ids else "The prompt has no token."
            raise ApiError(400, said, field)
        if len(ids) >= length:
            said = f"The prompt has {len(ids)} tokens, and the model takes {length - 1} at most."
            raise ApiError(400, said, field, "context_length_exceeded")
        return ids

    def conversation(self, asked: protocol.ChatRequest | protocol.TokenizeRequest) -> list[int]:
        """A conversation's tokens, by the model's chat template."""
        own = ("messages", "tools", "generate", "self")  # names of the call below
        more = {name: value for name, value in (asked.chat_template_kwargs or {}).items() if name not in own}
        tools = asked.tools if asked.tool_choice != "none" else None
        generate, messages = asked.add_generation_prompt is not False, msgspec.to_builtins(asked.messages)
        return self.text.chat(messages, tools, generate, **more)

    def seconds(self, request: Request, timeout: float | None) -> float:
        """How long a request may take: the least of what its header, its body and the server say."""
        given = request.headers.get("x-request-timeout", "")
        if given and not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", given):
            raise ApiError(400, f"The header `x-request-timeout` is a number of seconds, not {shorten(given)}.")
        return min(timeout or 1e9, float(given or 1e9), self.settings.deadline_s)

    def sequences(
        self, asked: GenerationFields, prompt: list[int], sampling: Sampling, *, most: int | None, client: str
    ) -> list[GenerateRequest]:
        """The choices that are asked of one prompt."""
        room, least = self.settings.length - len(prompt), asked.min_tokens or 0
        if most is not None and most > room:
            both = f"The prompt has {len(prompt)} tokens and {most} are asked for"
            said = f"{both}: the model takes {self.settings.length} together."
            raise ApiError(400, said, "max_tokens", "context_length_exceeded")
        if least > (most or room):
            raise ApiError(400, "`min_tokens` is more than `max_tokens`.", "min_tokens")
        ends = [*(asked.stop_token_ids or []), *([] if asked.ignore_eos else self.text.ends)]
        common = {"prompt": prompt, "length": most or room, "least": least, "ends": ends, "arrived": time.time()}
        common |= {"adapter": self.number(asked.model), "client": client}
        count, seed = asked.n or 1, sampling.seed  # of one seed, every choice has its own
        each = [sampling if seed is None else replace(sampling, seed=seed + at) for at in range(count)]
        return [GenerateRequest(id=uuid.uuid4().hex, sampling=own, **common) for own in each]

    # Generation

    async def chat(self, request: Request) -> Response:
        asked = await self.body(request, protocol.ChatRequest)
        if asked.top_logprobs and not asked.logprobs:
            raise ApiError(400, "`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
        prompt = self.fitting(await asyncio.to_thread(self.conversation, asked), "messages")
        sampling = sampling_of(asked, asked.top_logprobs or 0 if asked.logprobs else None, self.text.sampling)
        most = asked.max_completion_tokens or asked.max_tokens
        return await self.answer(
            request, asked, self.sequences(asked, prompt, sampling, most=most, client=client_of(request)), chat=True
        )

    async def completions(self, request: Request) -> Response:
        asked = await self.body(request, protocol.CompletionRequest)
        if asked.suffix:
            raise ApiError(400, "`suffix` is not offered: models here write what follows a prompt.", "suffix")
        if asked.best_of is not None and asked.best_of != (asked.n or 1):
            raise ApiError(400, "`best_of` is not offered beyond `n`.", "best_of")
        sampling, made = sampling_of(asked, asked.logprobs, self.text.sampling), []
        for prompt in await self.prompts(asked.prompt, "prompt", asked.add_special_tokens is not False):
            most = asked.max_tokens or min(16, self.settings.length - len(prompt))
            made += self.sequences(asked, prompt, sampling, most=most, client=client_of(request))
        if asked.echo and asked.logprobs is not None:
            made = [replace(one, prompt_logprobs=asked.logprobs) for one in made]
        return await self.answer(request, asked, made, chat=False, echo=bool(asked.echo))

    async def answer(
        self, request: Request, asked: GenerationFields, made: list[GenerateRequest], chat: bool, echo: bool = False
    ) -> Response:
        """Generate, as a whole or as a stream."""
        if grammar := made[0].sampling.grammar:  # engines take it for granted that it can be read in a moment
            await self.grammars.check(grammar, made[0].client)
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        include, skip = bool(asked.include_stop_str_in_output), asked.skip_special_tokens is not False
        tools = isinstance(asked, protocol.ChatRequest) and asked.tools and asked.tool_choice != "none"
        mark, choices = marks_of(self.text.templates.values()) if tools else "", []
        skip = skip and not mark  # marks of calls may be special tokens
        for index, one in enumerate(made):
            stream = TextStream(self.text, one.prompt, stops, one.ends, include, skip)
            said = self.text.decode(one.prompt, skip_special=skip) if echo else ""
            calls = CallReader(mark) if mark else None
            choices.append(ChoiceAnswer(index, one, self.text, stream, chat, said, calls))
        generation = self.generation(request, choices, asked.timeout)
        kind = ("chat.completion.chunk" if asked.stream else "chat.completion") if chat else "text_completion"
        name = f"{'chatcmpl' if chat else 'cmpl'}-{request.state.id}"
        about = {"id": name, "object": kind, "created": int(time.time()), "model": asked.model or self.names[0]}
        if asked.stream:
            wanted = asked.stream_options is not None and asked.stream_options.include_usage
            count = (lambda: usage(choices, asked.n or 1)) if wanted else None
            return AnswerStream(generation, about, count, self.settings.unread_bytes)
        await generation.whole(request.receive)
        told = [one.whole() for one in choices]
        return answer_json({**about, "choices": told, "usage": usage(choices, asked.n or 1)})

    def generation(self, request: Request, choices: list[ChoiceAnswer], timeout: float | None) -> Generation:
        """The choices as something that runs, within their time, and that is told of when the server stops."""
        if why := self.late():
            raise ApiError(503, f"The server is not ready: {why}.", retry_after=1)
        self.front.check_room(len(choices), choices[0].request.client)
        seconds = self.seconds(request, timeout)
        for one in choices:
            one.request = replace(one.request, deadline=time.time() + seconds)
        made = Generation(self.front, choices, self.metrics, asyncio.get_running_loop().time() + seconds)
        request.state.generation = made
        self.under_way.add(made)
        return made

    async def embeddings(self, request: Request) -> Response:
        asked = await self.body(request, protocol.EmbeddingRequest)
        if asked.dimensions is not None:
            raise ApiError(400, "`dimensions` is not offered: an embedding is as wide as the model.", "dimensions")
        choices = []
        for index, prompt in enumerate(await self.prompts(asked.input, "input")):
            own = {"arrived": time.time(), "embed": True, "adapter": self.number(asked.model)}
            own["client"] = client_of(request)
            one = GenerateRequest(id=uuid.uuid4().hex, prompt=prompt, length=1, **own)
            choices.append(ChoiceAnswer(index, one, self.text, TextStream(self.text, prompt), False))
        await self.generation(request, choices, asked.timeout).whole(request.receive)
        shown = as_base64 if asked.encoding_format == "base64" else list
        rows = [{"object": "embedding", "index": one.index, "embedding": shown(one.embedding)} for one in choices]
        used = usage(choices, 1)
        return answer_json({"object": "list", "data": rows, "model": asked.model or self.names[0], "usage": used})

    # The rest

    async def tokenize(self, request: Request) -> Response:
        asked = await self.body(request, protocol.TokenizeRequest)
        if (asked.prompt is None) == (asked.messages is None):
            raise ApiError(400, "Either `prompt` or `messages` is to be given.", "prompt")
        special = asked.add_special_tokens is not False
        if asked.prompt is None:
            ids = await asyncio.to_thread(self.conversation, asked)
        else:
            ids = await asyncio.to_thread(self.text.encode, asked.prompt, special)
        texts = [self.text.token_text(one)[0] for one in ids] if asked.return_token_strs else None
        about = {"count": len(ids), "max_model_len": self.settings.length}
        return answer_json({**about, "tokens": ids, "token_strs": texts})

    async def detokenize(self, request: Request) -> Response:
        asked = await self.body(request, protocol.DetokenizeRequest)
        return answer_json({"prompt": await asyncio.to_thread(self.text.decode, asked.tokens, skip_special=False)})

    async def tokenizer_info(self, _: Request) -> Response:
        """What vLLM tells of a tokenizer, from which lm-eval makes its own."""
        roles = {name: self.text.named.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        template = self.text.templates.get("default") or next(iter(self.text.templates.values()), None)
        return answer_json({"tokenizer_class": "PreTrainedTokenizerFast", **roles, "chat_template": template})

    def card(self, name: str) -> dict[str, Any]:
        """About a model or an adapter, which says as vLLM's do what it belongs to."""
        known = {"max_model_len": self.settings.length, "owned_by": "dragonscale"}
        model = self.names[0]
        root = dict(self.settings.adapters).get(name, self.settings.root or model)
        of = {"root": root, "parent": None if name == model else model}
        return {"id": name, "object": "model", "created": self.created, **known, **of}

    async def models(self, _: Request) -> Response:
        return answer_json({"object": "list", "data": [self.card(name) for name in self.names]})

    async def model(self, request: Request) -> Response:
        self.number(name := request.path_params["model"])
        return answer_json(self.card(name))

    def late(self) -> str:
        """Why no requests are taken; empty where they are."""
        return "it is shutting down" if self.draining else self.front.why

    async def health(self, _: Request) -> Response:
        why = self.front.hopeless
        return answer_json({"status": "failed", "reason": why} if why else {"status": "ok"}, 503 if why else 200)

    async def ready(self, _: Request) -> Response:
        why = self.late()
        status = "draining" if self.draining else "starting" if why else "ready"
        return answer_json({"status": status, **({"reason": why} if why else {})}, 503 if why else 200)

    async def numbers(self, _: Request) -> Response:
        return Response(self.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def about(self, _: Request) -> Response:
        return answer_json({"version": version("dragonscale")})

    async def schema(self, _: Request) -> Response:
        return answer_json(openapi(self.names, version("dragonscale")))


def client_of(request: Request) -> str:
    """Who asks, as places in queues are shared: the other end of the connection."""
    return address_key(request.client.host if request.client else "")


def answer_json(said: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(said), status, media_type="application/json")


def as_base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def usage(choices: list[ChoiceAnswer], per_prompt: int) -> dict[str, Any]:
    """Tokens in and out; a prompt counts once however many choices it has."""
    prompts, out = choices[::per_prompt], sum(one.tokens for one in choices)
    asked, cached = sum(len(one.request.prompt) for one in prompts), sum(one.cached for one in prompts)
    told = {"prompt_tokens": asked, "completion_tokens": out, "total_tokens": asked + out}
    return {**told, "prompt_tokens_details": {"cached_tokens": cached}}
