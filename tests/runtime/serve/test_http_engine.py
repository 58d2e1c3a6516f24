"""The `openai` client against the real thing: HTTP, front, a worker process, the engine, a tiny model."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

pytest.importorskip("jax")

from tests.runtime.serve.chaos_server import CONFIG

VOCABULARY, END = 300, 299
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    from dragonscale.runtime.server.front import ServingFront
    from dragonscale.runtime.server.http import build_app, serve_http
    from dragonscale.runtime.server.routes import HttpSettings
    from dragonscale.runtime.server.text import load_text, plain_text
    from dragonscale.runtime.server.wire import WorkerOrder

    folder: Path = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": VOCABULARY, "eos_token_id": END}))
    plain = plain_text(VOCABULARY)
    plain.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": plain.templates["default"]}))
    shared = {"length": 128, "sequences": 4, "tokens": 64, "page": 8, "pages": 100, "cpu": 1}
    order = WorkerOrder(
        model=str(folder), plan="tensor=1,weights=fp32,kv=fp32,compute=fp32", lazy=True, tokenizer=str(folder), **shared
    )
    listener = socket.create_server(("127.0.0.1", 0))
    began, made = threading.Event(), []

    async def serve() -> None:
        front = ServingFront([order])
        await front.start()
        app = build_app(front, load_text(folder), HttpSettings("tiny", 128, VOCABULARY, log=lambda _: None))
        made.append(app)
        began.set()
        await serve_http(app, listener)
        await front.drain(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert began.wait(300)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0, timeout=300) as opened:
        yield opened
    made[0].state.server.should_exit = True
    thread.join(30)


@pytest.mark.slow
def test_answers_and_scores_agree(client: openai.OpenAI) -> None:
    """A stream is the same text; a prompt that has the answer in it scores its tokens as they were scored when they
    were chosen."""
    asked = {
        "model": "tiny",
        "prompt": "Once upon a time",
        "max_tokens": 20,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }
    said = client.completions.create(**asked, logprobs=3).choices[0]
    events = list(client.completions.create(**asked, stream=True))
    assert "".join(one.choices[0].text for one in events) == said.text
    again = client.completions.create(**asked)
    assert again.choices[0].text == said.text
    assert again.usage.prompt_tokens_details.cached_tokens == 8
    assert said.logprobs.token_logprobs == pytest.approx([max(top.values()) for top in said.logprobs.top_logprobs])
    whole = client.completions.create(**asked | {"max_tokens": 40}).choices[0].text
    assert whole.startswith(said.text)
    letters = {"extra_body": {"guided_regex": "[a-z]{20}"}}  # so that tokens and characters are one to one
    said = client.completions.create(**asked | letters, logprobs=1).choices[0]
    assert (len(said.text), said.logprobs.text_offset) == (20, list(range(20)))
    scored = client.completions.create(
        **asked | {"prompt": asked["prompt"] + said.text, "max_tokens": 1}, echo=True, logprobs=1
    )
    told = scored.choices[0].logprobs.token_logprobs
    assert told[0] is None
    assert told[16:36] == pytest.approx(said.logprobs.token_logprobs, abs=1e-3)


@pytest.mark.slow
def test_what_else_is_asked(client: openai.OpenAI) -> None:
    def ask(**more: object) -> list[str]:
        made = client.chat.completions.create(model="tiny", messages=HI, **({"max_tokens": 12} | more))
        return [one.message.content for one in made.choices]

    assert ask(n=3, seed=5) == ask(n=3, seed=5)
    assert len(set(ask(n=3, seed=5))) == 3
    assert ask(extra_body={"guided_choice": ["yes", "no"]})[0] in ("yes", "no")
    assert set(ask(extra_body={"structured_outputs": {"regex": "[ab]{6}"}})[0]) <= set("ab")
    form = {"type": "json_schema", "json_schema": {"name": "truth", "schema": {"type": "boolean"}}}
    assert json.loads(ask(response_format=form)[0]) in (True, False)
    with pytest.raises(openai.BadRequestError, match="cannot be used as a grammar"):
        ask(extra_body={"guided_regex": "("})
    with pytest.raises(openai.BadRequestError, match="bias is for token 300"):
        ask(logit_bias={"300": 1})
    one, two, three = (row.embedding for row in client.embeddings.create(model="tiny", input=["ab", "ab", "b"]).data)
    assert one == pytest.approx(two, abs=1e-5)
    assert one != pytest.approx(three, abs=1e-2)
    assert len(one) == CONFIG["hidden_size"]
