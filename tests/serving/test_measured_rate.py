"""Measured rates beside expected ones: how they are read, what is normal, and what explains a slow one."""

import pytest

import dragonscale as ds
from dragonscale.commands.serve.measured import read_measured
from dragonscale.errors import InputError


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("5.99 req/s", "requests", 5.99),
        ("3 qps", "requests", 3.0),
        ("335tok/s", "output", 335.0),
        ("1,414 tokens/s total", "total", 1414.0),
        ("total 1414 tok/s", "total", 1414.0),
        ("62 tok/s per request", "user", 62.0),
        ("900 tokens/s/GPU", "chip", 900.0),
        ("26ms/token", "tpot", 0.026),
        ("ttft 500ms", "ttft", 0.5),
        ("48s", "run", 48.0),
    ],
)
def test_what_people_write_is_read(text: str, name: str, value: float) -> None:
    quantity = read_measured(text)
    assert (quantity.name, quantity.value) == (name, pytest.approx(value))


@pytest.mark.parametrize("text", ["fast", "0 tok/s", "-3 req/s", "12 apples"])
def test_what_is_no_figure_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match="write requests"):
        read_measured(text)


def test_a_log_line_of_one_request_is_named():
    """sgl-project/sglang#3186: 140 tokens/s of an 8B model on an H200 with 28 requests running."""
    report = ds.serve(
        "llama3.1-8b", on="h200:1", engine="sglang", batch="28", prompt="2000", output="500", measured="140tok/s"
    )
    assert report.measured.verdict == "slow"
    assert report.measured.slowdown > 10
    assert report.verdict.startswith("Slow")
    assert report.measured.suspects[0].cause.startswith("one request at a time")


def test_a_rate_near_the_expected_one_is_normal():
    report = ds.serve("llama3-8b", on="h100:1", engine="vllm", batch="8", plan="tp1")
    rate = report.configs[0].output_tokens_per_s_per_chip
    measured = ds.serve("llama3-8b", on="h100:1", engine="vllm", batch="8", plan="tp1", measured=f"{rate:.0f} tok/s")
    assert measured.measured.verdict == "normal"
    assert not measured.measured.suspects
    fast = ds.serve("llama3-8b", on="h100:1", engine="vllm", batch="8", plan="tp1", measured=f"{9 * rate:.0f} tok/s")
    assert fast.measured.verdict == "fast"


def test_one_batch_is_timed_from_start_to_end():
    """NVIDIA/TensorRT-LLM#43: 64 sequences of 128 tokens in 751 ms are its table's 10,907 tokens/s."""
    report = ds.serve("gpt-j-6b", on="h100:1", engine="trtllm", dtype="fp8", batch="64", prompt="128", output="128")
    (run,) = report.counted_runs
    assert run.output_tokens_per_s * run.seconds == pytest.approx(64 * 128)
    assert run.seconds == pytest.approx(0.751, rel=0.15)
    assert run.output_tokens_per_s == pytest.approx(10_907, rel=0.15)


def test_a_benchmark_of_more_prompts_is_faster_for_its_tail():
    few = ds.serve("llama3-8b", on="h100:1", engine="vllm", plan="tp1", prompt="220", output="200", requests=50)
    many = ds.serve("llama3-8b", on="h100:1", engine="vllm", plan="tp1", prompt="220", output="200", requests=400)
    assert few.counted_runs[0].requests == 50
    assert many.counted_runs[0].requests_per_s > 1.2 * few.counted_runs[0].requests_per_s


def test_several_engines_are_compared():
    report = ds.serve("llama3-8b", on="h100:1", engine="sglang,vllm", plan="tp1", prompt="227", output="188")
    assert [row.engine for row in report.engines] == ["sglang", "vllm"]
    assert "sglang and vllm" in report.verdict


def test_a_pipeline_is_held_against_one_chip():
    """NVIDIA/TensorRT-LLM#1102: two stages take as long as one GPU for one request."""
    report = ds.serve("llama1-7b", on="a100:2", engine="trtllm", plan="pp2", batch="1", prompt="1024", output="512")
    assert report.beside[0].is_same
    assert "pp2 changes nothing" in report.verdict
