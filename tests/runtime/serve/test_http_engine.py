"""The `openai` client against the real thing: HTTP, front, two worker processes, the engine, a tiny model."""

import asyncio
import json
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
        front = ServingFront([order, order], router="prefix_affinity")
        await front.start()
        app = build_app(front, load_text(folder), HttpSettings("tiny", 128, VOCABULARY, log=lambda _: None))
        made.append(app)
        began.set()
        await serve_http(app, listener)
        await front.close()

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


@pytest.mark.slow
def test_prompts_that_begin_alike_share_pages_over_replicas_and_grammars_hold_under_load(client: openai.OpenAI) -> None:
    """Forty at once of two beginnings, each of which one replica computes once; every other is held to a grammar, and
    the rest say what they say alone."""
    begins = ["The quick brown fox jumps over the lazy ", "It was a bright cold day in April, and t"]
    prompts = [f"{begins[at // 2 % 2]}{at:04}" for at in range(40)]
    held = {at: {"guided_regex": "[a-f]{3,9}-[0-9]{2}"} for at in range(0, 40, 2)}

    def ask(at: int, prompt: str) -> tuple[str, int]:
        more = {"extra_body": {"ignore_eos": True, **held.get(at, {})}}
        said = client.completions.create(model="tiny", prompt=prompt, max_tokens=12, temperature=0, **more)
        return said.choices[0].text, said.usage.prompt_tokens_details.cached_tokens

    def hits() -> list[int]:
        page = urllib.request.urlopen(f"{str(client.base_url).removesuffix('/v1/')}/metrics").read().decode()
        return [int(float(one)) for one in re.findall(r"vllm:prefix_cache_hits_total\{.*?\} (\S+)", page)]

    with ThreadPoolExecutor(40) as pool:
        said = list(pool.map(ask, range(40), prompts))
    assert all(re.fullmatch("[a-f]{3,9}-[0-9]{2}", said[at][0]) for at in held)
    assert [len(text) for at, (text, _) in enumerate(said) if at not in held] == [12] * 20
    cached = [sorted(said[at][1] for at in range(40) if at // 2 % 2 == which) for which in (0, 1)]
    assert cached == [[0] + [40] * 19] * 2  # five pages of eight tokens
    alone = {at: ask(at, prompts[at])[0] for at in (1, 3, 18, 39)}
    assert alone == {at: said[at][0] for at in alone}
    assert [one >= 19 * 40 for one in hits()] == [True, True]
