"""Files of benchmarks and of conversations as requests: small ones with the fields that their programs write."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonscale.commands.train.lengths import read_lengths
from dragonscale.errors import InputError
from dragonscale.faces.cli.app import run
from dragonscale.simulation.benchmark_files import parse_benchmark
from dragonscale.simulation.trace_files import read_benchmark, read_trace

# Three requests of 100, 200 and 300 tokens with outputs of 10, 20 and 30, sent at 0, 0.5 and 2 seconds; those that
# failed, warmed up or were left out are the fourth.
PROMPTS, OUTPUTS, TIMES = [100, 200, 300], [10, 20, 30], [0.0, 0.5, 2.0]
VLLM = {
    "date": "20261101-120000",
    "backend": "vllm",
    "request_rate": 2.0,
    "duration": 3.5,
    "completed": 3,
    "request_throughput": 0.86,
    "input_lens": [*PROMPTS, 400],
    "output_lens": [*OUTPUTS, 0],
    "start_times": [1000.0 + time for time in (*TIMES, 2.5)],
    "ttfts": [0.1, 0.1, 0.1, 0.0],
    "itls": [[0.01]] * 4,
    "errors": ["", "", "", "timed out"],
}
GUIDELLM = {
    "metadata": {"version": 1},
    "benchmarks": [
        {
            "requests": {
                "successful": [
                    {"prompt_tokens": prompt, "output_tokens": output, "request_start_time": 1.7e9 + time}
                    for prompt, output, time in zip(PROMPTS, OUTPUTS, TIMES, strict=True)
                ],
                "errored": [{"prompt_tokens": 400, "output_tokens": None}],
            },
        }
    ],
}


def aiperf(prompt: int, output: int, time: float, phase: str = "profiling", **more: Any) -> dict[str, Any]:
    metadata = {"session_num": 0, "request_start_ns": int((1.7e9 + time) * 1e9), "benchmark_phase": phase}
    lengths = {"input_sequence_length": prompt, "output_sequence_length": output}
    metrics = {name: {"value": value, "unit": "tokens"} for name, value in lengths.items()}
    return {"metadata": metadata, "metrics": metrics, "error": None} | more


# in the order in which they ended, as its workers write them
AIPERF = [
    aiperf(200, 20, 0.5),
    aiperf(100, 10, 0.0),
    aiperf(400, 40, -1.0, "warmup"),
    aiperf(300, 30, 2.0),
    aiperf(400, 40, 2.5, metrics={"error_isl": {"value": 400, "unit": "tokens"}}, error={"code": 499}),
]
INFERENCE_PERF = [
    {
        "start_time": 5000.0 + time,
        "end_time": 5003.0,
        "request": "{}",
        "response": "{}",
        "info": {"input_tokens": prompt, "output_tokens": output, "output_token_times": []},
        "error": None,
    }
    for prompt, output, time in zip(PROMPTS, OUTPUTS, TIMES, strict=True)
] + [{"start_time": 5004.0, "end_time": 5005.0, "info": None, "error": {"error_type": "timeout"}}]
SHAREGPT = [
    {
        "id": "a",
        "conversations": [{"from": "human", "value": "x" * 400}, {"from": "gpt", "value": "y" * 40}],
    },
    {
        "id": "b",
        "conversations": [
            {"from": "human", "value": "x" * 800},
            {"from": "gpt", "value": "y" * 80},
            {"from": "human", "value": "z" * 400},
        ],
    },
    {"id": "c", "conversations": [{"from": "human", "value": "nobody answers"}]},
]
GENAI_PERF = {
    "service_kind": "openai",
    "endpoint": "v1/chat/completions",
    "experiments": [
        {
            "experiment": {"mode": "concurrency", "value": 1},
            "requests": [
                {
                    "timestamp": 1_000_000_000,
                    "request_inputs": {"payload": json.dumps({"messages": [{"role": "user", "content": "x" * 400}]})},
                    "response_timestamps": [1_200_000_000, 1_300_000_000],
                    "response_outputs": [
                        {"response": "data: " + json.dumps({"choices": [{"delta": {"content": "y" * 40}}]}) + "\n\n"},
                        {"response": "data: [DONE]\n\n"},
                    ],
                }
            ],
        }
    ],
}
FILES = {
    "vllm": (json.dumps(VLLM), "a result of vLLM's or SGLang's serving benchmark"),
    "sglang": ("\n".join(map(json.dumps, [VLLM | {"input_lens": []}, VLLM])), "serving benchmark: 3 requests"),
    "guidellm": (json.dumps(GUIDELLM, indent=1), "a report of GuideLLM: 3 requests"),
    "aiperf": ("\n".join(map(json.dumps, AIPERF)), "an export of AIPerf: 3 requests"),
    "inference-perf": (json.dumps(INFERENCE_PERF, indent=2), "requests of inference-perf: 3 requests"),
}


def file_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "requests.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_requests_have_the_lengths_and_times_of_the_file(name: str, tmp_path: Path) -> None:
    text, note = FILES[name]
    replay = read_trace(file_of(tmp_path, text))
    requests = list(replay.read())
    assert note in replay.note
    assert [request.input_tokens for request in requests] == PROMPTS
    assert [request.output_tokens for request in requests] == OUTPUTS
    assert [request.arrival_s for request in requests] == pytest.approx(TIMES, abs=1e-6)


@pytest.mark.parametrize("name", FILES)
def test_datasets_and_answers_take_their_lengths_from_the_same_files(name: str, tmp_path: Path) -> None:
    path = str(file_of(tmp_path, FILES[name][0]))
    assert read_lengths(path).tokens == [110, 220, 330]
    assert read_lengths(path, answers=True).tokens == OUTPUTS


def test_conversations_are_estimated_and_sent_at_a_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, json.dumps(SHAREGPT))
    benchmark = read_benchmark(path)
    assert benchmark is not None
    assert [request[1:] for request in benchmark.requests] == [(100, 10, 110), (200, 20, 320)]
    assert "tokens estimated from its texts" in benchmark.note
    lines = file_of(tmp_path, "\n".join(map(json.dumps, SHAREGPT)))
    assert read_lengths(str(lines)).tokens == [110, 320]
    with pytest.raises(InputError, match="has lengths of requests and not when they came"):
        read_trace(path)
    assert run(["simulate", "llama3-8b", "--on", "h100:1", "--trace", str(path), "--rate", "4/s", "--json"]) == 0
    printed = capsys.readouterr()
    assert "Read as conversations of ShareGPT: 2 requests; tokens estimated" in printed.err
    assert run(["simulate", "llama3-8b", "--on", "h100:1", "--trace", str(path), "--clients", "4"]) == 2


def test_texts_of_genai_perf_are_estimated(tmp_path: Path) -> None:
    benchmark = read_benchmark(file_of(tmp_path, json.dumps(GENAI_PERF)))
    assert benchmark is not None
    assert benchmark.requests[0][:3] == (1.0, 100, 10)


def test_a_trace_with_times_takes_no_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(file_of(tmp_path, FILES["vllm"][0]))
    assert run(["simulate", "llama3-8b", "--on", "h100:1", "--trace", path, "--rate", "4/s"]) == 2
    assert "A trace says when requests come; leave --rate" in capsys.readouterr().err


WRONG = {
    "a result without details": (
        json.dumps({name: VLLM[name] for name in ("duration", "request_throughput", "completed")}),
        "run the benchmark with --save-detailed",
    ),
    "lists that differ": (json.dumps(VLLM | {"output_lens": [1]}), "cannot be read as one"),
    "a text for a length": (json.dumps(VLLM | {"input_lens": ["many"]}), "cannot be read as one"),
    "no success": (json.dumps({"benchmarks": []}), "a report of GuideLLM without any request"),
    "another object": ('{"colour": "red"}', "is no Mooncake request"),
    "half an object": ('{"benchmarks": [', "is no Mooncake request"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_one_sentence(name: str, tmp_path: Path) -> None:
    text, said = WRONG[name]
    with pytest.raises(InputError, match=said) as refused:
        read_trace(file_of(tmp_path, text))
    assert "\n" not in str(refused.value)


SPOILT = st.sampled_from([None, True, -1, 0, 1e300, "text", [], {}, [1], {"a": 1}, "1e999", [[]], [None]])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(["vllm", "guidellm", "aiperf", "inference-perf", "sharegpt", "genai-perf"]))
def test_a_spoilt_file_is_read_or_refused_in_a_sentence(data: st.DataObject, name: str) -> None:
    """Whatever one value of a file becomes."""
    documents = {
        "vllm": VLLM,
        "guidellm": GUIDELLM,
        "aiperf": AIPERF,
        "inference-perf": INFERENCE_PERF,
        "sharegpt": SHAREGPT,
        "genai-perf": GENAI_PERF,
    }
    document = json.loads(json.dumps(documents[name]))
    node = document
    # walk down to some container, and put something else in the place of one of its values
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(SPOILT)
    try:
        benchmark = parse_benchmark(json.dumps(document), "The file")
    except InputError:
        return
    if benchmark is not None:
        assert all(min(request[1:]) > 0 for request in benchmark.requests)
