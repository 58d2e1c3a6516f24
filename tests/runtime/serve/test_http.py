"""The server as its clients see it: the `openai` client, `vllm bench serve`'s and lm-eval's requests, and everybody who
does it wrong."""

import base64
import json
import struct

import httpx
import jsonschema
import openai
import pytest

from dragonscale.runtime.serve.requests import Emitted, GenerateRequest, Sampling, TokenLogprob
from dragonscale.runtime.server.answers import ChoiceAnswer
from dragonscale.runtime.server.metrics import ServerMetrics
from dragonscale.runtime.server.protocol import CompletionRequest, read, sampling_of
from dragonscale.runtime.server.text import TextStream, plain_text
from tests.runtime.serve.echo_front import EchoFront, served, settings

HTTP = httpx.Client(timeout=60)
HELLO = [72, 101, 108, 108, 111]


@pytest.fixture(scope="module", autouse=True)
def _closed():
    with HTTP:
        yield


@pytest.fixture(scope="module")
def front():
    return EchoFront()


@pytest.fixture(scope="module")
def lines():
    return []


@pytest.fixture(scope="module")
def url(front, lines):
    with served(front, settings(log=lines.append, body_bytes=100_000)) as address:
        yield address


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def test_chat(client, front):
    said = client.chat.completions.create(
        model="echo",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Hé"}]}],
        max_completion_tokens=9,
        n=2,
        logprobs=True,
        top_logprobs=2,
        seed=7,
        logit_bias={"5": -100},
        extra_body={"top_k": 3, "min_p": 0.5, "reasoning_effort": "low"},
    )
    assert [one.message.content for one in said.choices] == ["user: Hé"] * 2
    assert [one.finish_reason for one in said.choices] == ["length"] * 2
    row = said.choices[0].logprobs.content[0]
    assert (row.token, row.logprob, row.bytes, row.top_logprobs[1].token) == ("u", -0.25, [117], "A")
    assert (said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.prompt_tokens_details.cached_tokens) == (
        21,
        18,
        1,
    )
    first, second = front.seen[-2:]
    assert (first.sampling.seed, second.sampling.seed) == (7, 8)
    assert (first.sampling.top_k, first.sampling.min_p, first.sampling.bias) == (3, 0.5, {5: -100.0})
    assert first.id != second.id


def test_chat_stream(client):
    events = list(
        client.chat.completions.create(
            model="echo",
            messages=[{"role": "user", "content": "ab"}],
            max_tokens=20,
            stream=True,
            n=2,
            stop=["b\n"],
            stream_options={"include_usage": True},
        )
    )
    texts = {0: "", 1: ""}
    for event in events:
        for choice in event.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "user: a", 1: "user: a"}
    assert [one.choices[0].finish_reason for one in events if one.choices and one.choices[0].finish_reason] == [
        "stop"
    ] * 2
    assert events[0].choices[0].delta.role == "assistant"
    assert events[-1].usage.completion_tokens == 18
    assert all(one.usage is None for one in events[:-1])


CALLS = [
    (
        "<tool_call>",
        'Hm. <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call> <b><tool_call>\n{"name": "g"}\n</tool_call>!',
        "Hm.  <b>",
    ),
    ("[TOOL_CALLS]", '[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}, {"name": "g"}]!', None),
]


@pytest.mark.parametrize(("mark", "written", "content"), CALLS)
def test_calls_of_tools_are_read(mark, written, content):
    text = plain_text(300)
    text.templates = {"default": "{% for m in messages %}{{ m.content }}{% endfor %}{# " + mark + " #}"}
    given = {"model": "echo", "messages": [{"role": "user", "content": written}], "max_tokens": 400, "stop": ["!"]}
    tools = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
    with (
        served(EchoFront(), settings(), text) as url,
        openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client,
    ):
        whole = client.chat.completions.create(**given, **tools).choices[0]
        calls = [(one.function.name, one.function.arguments) for one in whole.message.tool_calls]
        assert (calls, whole.finish_reason) == ([("f", '{"x": 1}'), ("g", "{}")], "tool_calls")
        assert whole.message.content == content
        said, found, ends = "", {}, []
        for event in client.chat.completions.create(**given, **tools, stream=True):
            delta = event.choices[0].delta
            said += delta.content or ""
            found |= {one.index: (one.function.name, one.function.arguments) for one in delta.tool_calls or []}
            ends.append(event.choices[0].finish_reason)
        assert (list(found.items()), ends[-1]) == (list(enumerate(calls)), "tool_calls")
        assert said.strip() == (content or "")
        plain = client.chat.completions.create(**given).choices[0]  # nobody asked for calls
        assert (plain.message.content + "!", plain.message.tool_calls) == (written, None)
        torn = client.chat.completions.create(**(given | {"max_tokens": 30}), **tools).choices[0]
        assert (torn.message.content, torn.finish_reason) == (written[:30], "length")


def test_prompts_of_all_kinds(client):
    for prompt, texts in [
        ("Hello", ["Hello"]),
        (HELLO, ["Hello"]),
        (["ab", "c"], ["abab", "cccc"]),
        ([HELLO, [97]], ["Hell", "aaaa"]),
    ]:
        said = client.completions.create(model="echo", prompt=prompt, max_tokens=len(texts[0]))
        assert [one.text for one in said.choices] == texts
    said = client.completions.create(model="echo", prompt="ab", max_tokens=2, logprobs=1)
    told = said.choices[0].logprobs
    assert (told.tokens, told.token_logprobs, told.text_offset) == (["a", "b"], [-0.25, -0.25], [0, 1])
    assert told.top_logprobs == [{"a": -0.25}, {"b": -0.25}]


def test_a_request_of_lm_eval(url):
    """`local-completions` scores a continuation by the log probabilities of a prompt that is said again."""
    asked = {
        "model": "echo",
        "prompt": [HELLO, HELLO],
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    said = HTTP.post(url + "/v1/completions", json=asked).json()
    assert [one["text"] for one in said["choices"]] == ["HelloH"] * 2
    told = said["choices"][0]["logprobs"]
    assert told["token_logprobs"] == [None, -0.5, -0.5, -0.5, -0.5, -0.25]
    assert told["top_logprobs"][2:4] == [{"l": -0.5}] * 2
    assert told["text_offset"] == [0, 1, 2, 3, 4, 5]


def test_a_request_of_vllm_bench_serve(url):
    """Its payloads: nulls for what is not set, tokens without an end."""
    asked = {
        "model": "echo",
        "prompt": "ab",
        "repetition_penalty": 1.0,
        "max_tokens": 6,
        "logprobs": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    text, usage = "", None
    with HTTP.stream("POST", url + "/v1/completions", json=asked, headers={"x-request-id": "bench-1"}) as answer:
        assert (answer.status_code, answer.headers["x-request-id"]) == (200, "bench-1")
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    for line in lines:
        event = json.loads(line)
        if event["choices"]:
            text += event["choices"][0]["text"]
        else:
            usage = event["usage"]
    assert (text, usage["completion_tokens"], usage["prompt_tokens"]) == ("ababab", 6, 2)


def test_what_lm_eval_and_vllm_bench_ask_first():
    """lm-eval makes a tokenizer of the server's; the other takes the first model, its root for a tokenizer, and an
    event of a chat for a token where it has content and no role."""
    text = plain_text(300)
    text.named = {"eos_token": "</s>"}
    with served(EchoFront(), settings(root="folders/echo"), text) as address:
        about = HTTP.get(address + "/tokenizer_info").json()
        assert (about["eos_token"], about["bos_token"]) == ("</s>", None)
        assert about["chat_template"] == text.templates["default"]
        asked = {"model": "echo", "prompt": "Hello", "add_special_tokens": False}
        assert HTTP.post(address + "/tokenize", json=asked).json()["tokens"] == HELLO
        assert HTTP.post(address + "/detokenize", json={"model": "echo", "tokens": HELLO}).json()["prompt"] == "Hello"
        first = HTTP.get(address + "/v1/models").json()["data"][0]
        assert (first["id"], first["root"]) == ("echo", "folders/echo")
        chat = {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 1, "stream": True}
        lines = HTTP.post(address + "/v1/chat/completions", json=chat).text.split("\n\n")
        deltas = [json.loads(one.removeprefix("data: "))["choices"][0]["delta"] for one in lines[:2]]
        assert deltas == [{"role": "assistant", "content": ""}, {"content": "u"}]


def test_what_a_request_says_of_sampling_comes_before_what_the_makers_recommend():
    given = {"temperature": 0.5, "top_k": -1, "min_p": 0.1, "seed": 7, "logit_bias": {"3": 2.0}}
    given |= {"presence_penalty": 1.0, "frequency_penalty": -1.0, "repetition_penalty": 1.5}
    asked = read(json.dumps({"prompt": "a"} | given).encode(), CompletionRequest)
    penalties = {"presence": 1.0, "frequency": -1.0, "repetition": 1.5}
    wanted = Sampling(temperature=0.5, top_k=0, top_p=0.9, min_p=0.1, seed=7, bias={3: 2.0}, logprobs=2, **penalties)
    assert sampling_of(asked, 2, {"temperature": 0.1, "top_p": 0.9}) == wanted
    assert sampling_of(read(b'{"prompt": "a"}', CompletionRequest), None, {}) == Sampling()


def test_log_probabilities_end_where_the_stop_string_does():
    """Drafts bring several tokens at once, some behind the stop."""
    text = plain_text(300)
    asked = GenerateRequest(id="a", prompt=HELLO, sampling=Sampling(logprobs=0))
    choice = ChoiceAnswer(0, asked, text, TextStream(text, HELLO, ["el"]), chat=True)
    choice.take(
        Emitted(id="a", tokens=HELLO, logprobs=[TokenLogprob(one, -1.0) for one in HELLO]), ServerMetrics("", dict)
    )
    said = choice.whole()
    assert (said["message"]["content"], said["finish_reason"]) == ("H", "stop")
    assert [row["token"] for row in said["logprobs"]["content"]] == ["H", "e", "l"]


def test_offsets_leave_out_tokens_that_are_not_in_the_text():
    text = plain_text(300)
    text.tokenizer.add_special_tokens(["<begin>"])
    text.special.add(300)
    with served(EchoFront(), settings(vocabulary=301), text) as url:
        body = {"prompt": [300, 97, 98], "max_tokens": 1, "echo": True, "logprobs": 1}
        choice = HTTP.post(f"{url}/v1/completions", json=body).json()["choices"][0]
    assert (choice["text"], choice["logprobs"]["text_offset"]) == ("ab", [0, 0, 1, 2])


def test_adapters_are_models_by_name(front):
    with served(front, settings(adapters=(("sql", "adapters/sql"), ("law", "adapters/law")))) as address:
        for path, body in (
            ("completions", {"prompt": "a", "max_tokens": 1}),
            ("chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
            ("embeddings", {"input": "a"}),
        ):
            for number, name in enumerate(("echo", "sql", "law")):
                said = HTTP.post(f"{address}/v1/{path}", json={"model": name, **body})
                assert (said.status_code, said.json()["model"], front.seen[-1].adapter) == (200, name, number)
        assert HTTP.post(f"{address}/v1/completions", json={"prompt": "a"}).json()["model"] == "echo"
        cards = HTTP.get(address + "/v1/models").json()["data"]
        assert [(one["id"], one.get("root"), one.get("parent")) for one in cards] == [
            ("echo", "echo", None),
            ("sql", "adapters/sql", "echo"),
            ("law", "adapters/law", "echo"),
        ]
        assert HTTP.get(address + "/v1/models/law").json()["parent"] == "echo"
        wrong = HTTP.post(f"{address}/v1/completions", json={"model": "tax", "prompt": "a"})
        assert (wrong.status_code, "only 'echo', 'sql', 'law'" in wrong.json()["error"]["message"]) == (404, True)
        schema = HTTP.get(address + "/openapi.json").json()["components"]["schemas"]["CompletionRequest"]
        assert schema["properties"]["model"]["enum"] == ["echo", "sql", "law", None]


def test_embeddings(client, url):
    said = client.embeddings.create(model="echo", input=["ab", "c"])  # the client asks for base64
    assert [one.embedding for one in said.data] == [[0.5, -1.25]] * 2
    assert said.usage.prompt_tokens == 3
    packed = HTTP.post(url + "/v1/embeddings", json={"input": "a", "encoding_format": "base64"}).json()["data"][0][
        "embedding"
    ]
    assert struct.unpack("<2f", base64.b64decode(packed)) == (0.5, -1.25)


@pytest.mark.parametrize(
    ("body", "grammar"),
    [
        ({"response_format": {"type": "json_object"}}, ("json_object", "")),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}},
            ("json_schema", '{"type":"object"}'),
        ),
        ({"guided_regex": "a+"}, ("regex", "a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, ("choice", '["a","b"]')),
        ({"response_format": {"type": "text"}}, None),
    ],
)
def test_constraints(url, front, body, grammar):
    asked = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **body}
    assert HTTP.post(url + "/v1/chat/completions", json=asked).status_code == 200
    assert front.seen[-1].sampling.grammar == grammar


def test_the_rest(client, url, lines):
    assert client.models.list().data[0].id == client.models.retrieve("echo").id == "echo"
    made = HTTP.post(url + "/tokenize", json={"prompt": "Hello", "return_token_strs": True}).json()
    assert made == {"count": 5, "max_model_len": 512, "tokens": HELLO, "token_strs": list("Hello")}
    assert HTTP.post(url + "/detokenize", json={"tokens": HELLO}).json() == {"prompt": "Hello"}
    assert [HTTP.get(url + path).status_code for path in ("/health", "/ready", "/version", "/openapi.json")] == [
        200
    ] * 4
    client.completions.create(model="echo", prompt="secret", max_tokens=3)
    page = HTTP.get(url + "/metrics").text
    for line in (
        'vllm:kv_cache_usage_perc{engine="0",model_name="echo"} 0.25',
        'vllm:prefix_cache_hits_total{engine="0",model_name="echo"} 2.0',
        'vllm:time_to_first_token_seconds_count{model_name="echo"}',
        'vllm:request_success_total{finished_reason="length",model_name="echo"}',
        'vllm:generation_tokens_total{model_name="echo"}',
    ):
        assert line in page
    line = next(one for one in reversed(lines) if one["route"] == "/v1/completions")
    assert (line["status"], line["prompt_tokens"], line["output_tokens"], line["finish"]) == (200, 6, 3, "length")
    assert line["ttft_s"] > line["queue_s"] == 0
    assert "secret" not in str(lines)


DEEP = '{"prompt":"a","guided_json":' + '{"a":' * 100_000 + "1" + "}" * 100_001
CHAT = {"messages": [{"role": "user", "content": "a"}]}


def called(function):
    return {"messages": [{"role": "assistant", "tool_calls": [{"function": function}]}]}


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("completions", b"", 400, "is not JSON"),
        ("completions", b"{", 400, "is not JSON"),
        ("completions", b'{"prompt": "\xff"}', 400, "is not JSON"),
        ("completions", b'{"prompt": "\\ud800"}', 400, "is not JSON"),
        ("completions", b'{"prompt": "a", "temperature": NaN}', 400, "is not JSON"),
        ("completions", b'{"prompt": "a", "temperature": 1e999}', 400, "`temperature`"),
        ("completions", b'{"prompt": "a", "max_tokens": ' + b"9" * 6000 + b"}", 400, "`max_tokens`"),
        ("completions", DEEP.encode()[:90_000], 400, "nested"),
        ("completions", [], 400, "object"),
        ("completions", {}, 400, "missing required field `prompt`"),
        ("completions", {"prompt": []}, 400, "length >= 1"),
        ("completions", {"prompt": ["a", 1]}, 400, "list of texts"),
        ("completions", {"prompt": ""}, 400, "length >= 1"),
        ("completions", {"prompt": [300]}, 400, "beyond 299"),
        ("completions", {"prompt": "a" * 600}, 400, "600 tokens, and the model takes 511"),
        ("completions", {"prompt": "a", "max_tokens": 512}, 400, "1 tokens and 512"),
        ("completions", {"prompt": "a", "max_tokens": 0}, 400, "`max_tokens`"),
        ("completions", {"prompt": "a", "max_token": 5}, 400, "unknown field `max_token`"),
        ("chat/completions", CHAT | {"max_token": 5}, 400, "unknown field `max_token`"),
        ("completions", {"prompt": "a", "max_tokens": "5"}, 400, "`max_tokens`"),
        ("completions", {"prompt": "a", "max_tokens": 5.5}, 400, "`max_tokens`"),
        ("completions", {"prompt": {"text": "a"}}, 400, "`prompt`"),
        ("completions", {"prompt": "a", "stream": "yes"}, 400, "`stream`"),
        ("completions", {"prompt": "a", "n": True}, 400, "`n`"),
        ("completions", {"prompt": "a", "suffix": "b"}, 400, "`suffix`"),
        ("completions", {"prompt": "a", "best_of": 3}, 400, "`best_of`"),
        ("completions", {"prompt": "a", "model": "other"}, 404, "no model 'other' here"),
        ("completions", {"prompt": "a", "guided_regex": "a", "guided_choice": ["b"]}, 400, "one constraint"),
        ("completions", {"prompt": "a", "guided_regex": "("}, 400, "regex cannot be used"),
        ("completions", {"prompt": "a", "guided_choice": ["b" * 70_000]}, 400, "65,536 can be used"),
        ("completions", {"prompt": "a" * 100_001}, 413, "larger than 100000"),
        ("chat/completions", {"messages": []}, 400, "`messages`"),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "image_url"),
        ("chat/completions", CHAT | {"tool_choice": "required"}, 400, "`tool_choice`"),
        ("chat/completions", CHAT | {"top_logprobs": 2}, 400, "`logprobs`"),
        ("chat/completions", called("x"), 400, "`function`"),
        ("chat/completions", called({"arguments": "[" * 90_000}), 400, "not JSON"),
        ("completions", {"prompt": "a", "guided_json": "[" * 60_000}, 400, "not JSON"),
        ("chat/completions", CHAT | {"chat_template_kwargs": {"generate": 1, "self": 2}}, 200, ""),
        ("chat/completions", CHAT | {"response_format": {"type": "json_schema"}}, 400, "json_schema.schema"),
        ("embeddings", {"input": "a", "encoding_format": "int8"}, 400, "int8"),
        ("embeddings", {"input": "a", "dimensions": 8}, 400, "`dimensions`"),
        ("nothing", {}, 404, "no such path"),
        ("models", {}, 405, "method"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(url, path, body, status, says):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = HTTP.post(f"{url}/v1/{path}", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    if status != 200:
        error = answer.json()["error"]
        assert says in error["message"]
        assert error["message"].endswith(".")
        assert set(error) == {"message", "type", "param", "code"}


def test_answers_are_as_described(url):
    """Right ones and refusals of every path: schemathesis does it at length (test_http_schema.py)."""
    paths = HTTP.get(url + "/openapi.json").json()["paths"]
    asked = {
        "/v1/chat/completions": CHAT | {"max_tokens": 2, "logprobs": True},
        "/v1/embeddings": {"input": "a"},
        "/v1/completions": {"prompt": "a", "max_tokens": 2, "n": 2},
        "/tokenize": {"prompt": "a"},
        "/detokenize": {"tokens": [97]},
    }
    assert set(asked) == {path for path, methods in paths.items() if "post" in methods}
    wrong = {"model": "other", **dict.fromkeys(("prompt", "input", "tokens", "messages"), 7)}
    refused = dict.fromkeys(asked, wrong)
    for body in (asked, refused):
        for path, methods in paths.items():
            for method, described in methods.items():
                place = url + path.replace("{model}", "echo" if body is asked else "other")
                answer = HTTP.request(method, place, json=body.get(path))
                right = body is asked or (method == "get" and "{" not in path)
                assert answer.is_success == right, (path, answer.text)
                content = described["responses"]["200" if right else "default"]["content"]
                held = content[answer.headers["content-type"].partition(";")[0]]
                if held:
                    jsonschema.validate(answer.json(), held["schema"])


def test_a_body_has_to_be_json(url):
    assert HTTP.post(url + "/v1/completions", content=b'{"prompt": "a"}').status_code == 415
    wrong = HTTP.post(url + "/v1/completions", json={"prompt": "a"}, headers={"x-request-timeout": "soon"})
    assert (wrong.status_code, "soon" in wrong.json()["error"]["message"]) == (400, True)


def test_keys_and_hosts():
    with served(EchoFront(), settings(api_key="sesame", hosts=("127.0.0.1",))) as url:
        asked = {"json": {"prompt": "a", "max_tokens": 1}}
        for key in ("", "Bearer", "Bearer wrong", "Basic sesame"):
            answer = HTTP.post(url + "/v1/completions", headers={"authorization": key}, **asked)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert (
            HTTP.post(url + "/v1/completions", headers={"authorization": "Bearer sesame"}, **asked).status_code == 200
        )
        assert HTTP.get(url + "/health").status_code == 200
        assert HTTP.get(url + "/health", headers={"host": "evil.example:1"}).status_code == 400
        for name in ("127.0.0.1.evil.example", "127.0.0.1@evil.example", ""):
            assert HTTP.get(url + "/health", headers={"host": name}).status_code == 400
    with served(EchoFront(), settings(hosts=("localhost",))) as url:
        assert HTTP.get(url + "/health", headers={"host": "LocalHost.:80"}).status_code == 200
