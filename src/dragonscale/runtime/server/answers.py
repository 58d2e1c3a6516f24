"""An answer while it is generated: what engines emit becomes text, and the text becomes one JSON answer or a stream of
events.

Of each choice a task reads what the engine emits, and one writer sends what has come together since it last sent: a
client that reads slowly gets fewer, longer events, and one that leaves more than a bound unread is cut off. Whatever
ends an answer early (the client has gone, its time is over, it does not read, the engine failed, the server stops) goes
through `fail`, which interrupts the writer wherever it waits; leaving `running` closes the engine's iterators, and so
cancels what is still generated.

An event is put together from bytes that were encoded once for its stream; only the new text is encoded.
"""

import asyncio
import math
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
from starlette.responses import Response

from dragonscale.runtime.serve.requests import Emitted, GenerateRequest, TokenLogprob
from dragonscale.runtime.server.front import DIED, Overfull
from dragonscale.runtime.server.metrics import ServerMetrics
from dragonscale.runtime.server.protocol import ApiError
from dragonscale.runtime.server.text import ModelText, TextStream
from dragonscale.runtime.server.tool_calls import CallReader

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_FAILED = {
    "refused": (400, ""),
    "error": (500, "The engine failed: "),
    "cancelled": (503, "The server cancelled the request."),
    "deadline": (408, "The request took longer than its time limit."),
}
_AT_ONCE = 64
"""Of one request's choices, those that are asked of the engines at once: the others wait without a place in the queue.
"""
_LEAST_UNREAD = 1 << 15
"""Bytes that a choice may always leave unread: a few tokens with their log probabilities come at once."""
_OPENING = b'"delta":{"role":"assistant","content":""}'
"""What comes before a message's text: `vllm bench serve` takes an event with a role for one without a token."""
_START_AFTER_S = 5.0
"""A stream's headers go out with its first token, so that a refusal has its own status; a longer wait begins without.
"""


def overfull(error: Overfull) -> ApiError:
    """That there is no room, and when to come again."""
    said = f"No room for the request: {error}; try again after {math.ceil(error.retry_after)} s."
    return ApiError(429, said, retry_after=error.retry_after)


class ChoiceAnswer:
    """One choice: its text that was not sent yet, the rows of its log probabilities, and its end."""

    def __init__(
        self,
        index: int,
        request: GenerateRequest,
        text: ModelText,
        stream: TextStream,
        chat: bool,
        echo: str = "",
        tools: CallReader | None = None,
    ) -> None:
        self.index, self.request, self._text, self._stream, self._chat = index, request, text, stream, chat
        self._tools, self._calls = tools, []
        self._new = [echo] if echo else []
        self._rows: list[TokenLogprob | None] = []
        self._offset = 0
        self.size, self.tokens, self.cached, self.finish = 0, 0, 0, ""
        self.began, self.first, self.last, self.waited = time.perf_counter(), 0.0, 0.0, 0.0
        self.embedding: list[float] = []
        self._opens, self.closed = chat, False

    def take(self, emitted: Emitted, metrics: ServerMetrics) -> None:
        """What an engine emitted, added."""
        if emitted.why == DIED:  # another try may find one that lives
            raise ApiError(503, DIED, retry_after=1)
        if emitted.finish in _FAILED:
            status, said = _FAILED[emitted.finish]
            raise ApiError(status, said if said.endswith(".") else f"{said}{emitted.why.rstrip('.')}.")
        new = self._stream.add(emitted.tokens, last=bool(emitted.finish))
        self._rows += [*emitted.prompt_logprobs, *emitted.logprobs[: self._stream.used - self.tokens]]
        self.size += len(new) + 100 * sum(1 + len(row.top) for row in emitted.logprobs)
        self.cached = self.cached or emitted.cached
        self.embedding = emitted.embedding or self.embedding
        ended = emitted.finish or self._stream.stopped
        if self._tools is not None:
            new, calls = self._tools.add(new, last=bool(ended))
            self._calls += calls
        if new:
            self._new.append(new)
        if emitted.tokens:
            now = time.perf_counter()
            if self.first:
                metrics.times["between"].observe((now - self.last) / len(emitted.tokens))
            else:
                self.first, self.waited = now, emitted.waited
                metrics.times["first_token"].observe(now - self.began)
                metrics.times["queued"].observe(emitted.waited)
            self.last, self.tokens = now, self._stream.used
        self.finish = "stop" if self._stream.stopped else emitted.finish
        if self.finish == "stop" and self._tools is not None and self._tools.count:
            self.finish = "tool_calls"

    def content(self) -> tuple[str, dict[str, Any] | None]:
        """The text and the log probabilities since the last call."""
        text, rows = "".join(self._new), self._rows
        self._new, self._rows, self.size = [], [], 0
        if self.request.sampling.logprobs is None:
            return text, None
        return text, {"content": [self._chat_row(row) for row in rows if row]} if self._chat else self._plain_rows(rows)

    def whole(self) -> dict[str, Any]:
        """All of it, as the choice of an answer that is no stream."""
        text, logprobs = self.content()
        body: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        if self._calls:
            calls = [{name: one[name] for name in ("id", "type", "function")} for one in self._calls]
            body["message"] |= {"content": text.strip() or None, "tool_calls": calls}
        return {"index": self.index, **body, "logprobs": logprobs, "finish_reason": self.finish}

    def event(self, head: bytes, tail: bytes) -> bytes:
        """What is new as an event of the stream, or nothing."""
        if self.closed or not (self._new or self._rows or self._calls or self.finish):
            return b""
        self.closed = bool(self.finish)
        text, logprobs = self.content()
        said = msgspec.json.encode(text)
        calls = b',"tool_calls":' + msgspec.json.encode(self._calls) if self._calls else b""
        body = b'"delta":{"content":' + said + calls + b"}" if self._chat else b'"text":' + said
        told = b"null" if logprobs is None else msgspec.json.encode(logprobs)
        finish = b'"' + self.finish.encode() + b'"' if self.finish else b"null"
        shape = b'%s"index":%d,%s,"logprobs":%s,"finish_reason":%s}]%s'
        opening = shape % (head, self.index, _OPENING, b"null", b"null", tail) if self._opens else b""
        self._opens, self._calls = False, []
        return opening + shape % (head, self.index, body, told, finish, tail)

    def _likely(self, token: int, logprob: float) -> dict[str, Any]:
        text, raw = self._text.token_text(token)
        return {"token": text, "logprob": max(logprob, -9999.0), "bytes": raw}  # JSON has no infinity

    def _chat_row(self, row: TokenLogprob) -> dict[str, Any]:
        top = row.top[: self.request.sampling.logprobs]
        return self._likely(row.token, row.logprob) | {"top_logprobs": [self._likely(*one) for one in top]}

    def _plain_rows(self, rows: list[TokenLogprob | None]) -> dict[str, Any]:
        """OpenAI's older form, as columns. The first token of a prompt has no probability. The chosen token is always
        among the likeliest, as clients compare the two."""
        told: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for row in rows:
            chosen = self._likely(row.token if row else self.request.prompt[0], row.logprob if row else 0.0)
            top = [self._likely(*one) for one in row.top] if row else []
            likely = {one["token"]: one["logprob"] for one in [chosen, *reversed(top)]}
            told["tokens"].append(chosen["token"])
            told["token_logprobs"].append(chosen["logprob"] if row else None)
            told["top_logprobs"].append(likely if row else None)
            told["text_offset"].append(self._offset)
            shown = self._stream.shown(row.token if row else self.request.prompt[0])
            self._offset += len(chosen["token"]) if shown else 0
        return told


class Generation:
    """The choices of one HTTP request while they are generated. `until` is the event loop's time at which they have to
    be done."""

    def __init__(self, front: Any, choices: list[ChoiceAnswer], metrics: ServerMetrics, until: float) -> None:
        self.front, self.choices, self.metrics, self._until = front, choices, metrics, until
        self._gate, self.wake = asyncio.Semaphore(_AT_ONCE), asyncio.Event()
        self._failure: ApiError | None = None
        self._limit: asyncio.Timeout | None = None
        self.unread: int | None = None

    def fail(self, error: ApiError) -> None:
        """End it early, with this said to the client; the first such reason counts."""
        if self._failure is None:
            self._failure = error
            if self._limit is not None and not self._limit.expired():
                self._limit.reschedule(0)

    @asynccontextmanager
    async def running(self, receive: Receive) -> AsyncIterator[None]:
        """While the choices are generated and the client is there."""
        tasks = [asyncio.create_task(self._read(choice)) for choice in self.choices]
        tasks.append(asyncio.create_task(self._watch(receive)))
        try:
            async with asyncio.timeout_at(self._until) as self._limit:
                yield
        except TimeoutError:
            raise self._failure or ApiError(*_FAILED["deadline"]) from None
        finally:
            self._limit = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def whole(self, receive: Receive) -> None:
        """Until all choices have ended."""
        async with self.running(receive):
            while not all(choice.finish for choice in self.choices):
                await self.wake.wait()
                self.wake.clear()

    def summary(self, seconds: float) -> dict[str, Any]:
        """What the log says of it; told to Prometheus on the way."""
        metrics, unfinished = self.metrics, "error" if self._failure and self._failure.status == 500 else "abort"
        spans = [(one.last - one.first) / (one.tokens - 1) for one in self.choices if one.tokens > 1]
        told: dict[str, Any] = {
            "prompt_tokens": sum(len(one.request.prompt) for one in self.choices),
            "output_tokens": sum(one.tokens for one in self.choices),
            "finish": ",".join(sorted({one.finish or unfinished for one in self.choices})),
        }
        for name, total in metrics.totals.items():
            total.inc(told[name])
        metrics.times["whole"].observe(seconds)
        for one in self.choices:
            metrics.ended(one.finish or unfinished)
        for span in spans:
            metrics.times["per_token"].observe(span)
        if begun := [one for one in self.choices if one.first]:
            told["ttft_s"] = min(one.first - one.began for one in begun)
            told["queue_s"] = max(one.waited for one in begun)
        told |= {"tpot_s": sum(spans) / len(spans)} if spans else {}
        return told | ({"error": self._failure.message} if self._failure else {})

    async def _read(self, choice: ChoiceAnswer) -> None:
        async with self._gate:
            try:
                async with aclosing(self.front.generate(choice.request)) as emitted:
                    async for one in emitted:
                        choice.take(one, self.metrics)
                        self.wake.set()
                        if choice.finish:
                            return
                        if self.unread is not None and choice.size > self.unread:
                            self.fail(ApiError(499, "The client does not read what it asked for."))
                self.fail(ApiError(500, "The engine ended the request without saying why."))
            except ApiError as error:
                self.fail(error)
            except Overfull as error:
                self.fail(overfull(error))
            except Exception:
                traceback.print_exc()
                self.fail(ApiError(500, "The server failed; its log says more."))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.fail(ApiError(499, "The client has gone."))


class AnswerStream(Response):
    """A generation as server-sent events: `head` opens each, `usage` makes the last one before the end, if it is
    wanted."""

    media_type = "text/event-stream"

    def __init__(
        self, generation: Generation, opening: dict[str, Any], usage: Callable[[], dict[str, Any]] | None, unread: int
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self.generation, self._opening, self._usage = generation, opening, usage
        generation.unread = max(unread // len(generation.choices), min(unread, _LEAST_UNREAD))

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        del scope
        started = False

        async def say(body: bytes, more: bool = True) -> None:
            nonlocal started
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": body, "more_body": more})

        opening = b"data: " + msgspec.json.encode(self._opening)[:-1]
        head, tail = opening + b',"choices":[{', b',"usage":null}\n\n' if self._usage else b"}\n\n"
        patience = asyncio.get_running_loop().call_later(_START_AFTER_S, self.generation.wake.set)
        last, choices = b"", self.generation.choices
        try:
            async with self.generation.running(receive):
                while not all(choice.closed for choice in choices):
                    await self.generation.wake.wait()
                    self.generation.wake.clear()
                    if (new := b"".join([choice.event(head, tail) for choice in choices])) or not started:
                        await say(new)
            if self._usage:
                last = opening + b',"choices":[],"usage":' + msgspec.json.encode(self._usage()) + b"}\n\n"
        except ApiError as error:
            if not started:
                raise
            if error.status == 499:  # nobody listens; the server closes what is left of the connection
                return
            last = b"data: " + error.body + b"\n\n"
        finally:
            patience.cancel()
        await say(last + b"data: [DONE]\n\n", more=False)
