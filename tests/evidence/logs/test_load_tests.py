"""Results of load generators, read and scored against a plan."""

import json
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.evidence.logs.load_test import LoadTest
from dragonscale.evidence.logs.reading import read_load_test
from dragonscale.evidence.logs.text import LogText
from tests.evidence.logs import samples
from tools.write_schemas import schema_text


def read(*results: dict[str, Any]) -> LoadTest:
    return read_load_test(LogText("\n".join(map(json.dumps, results)), Path("result.json")))


def test_vllm() -> None:
    assert read(samples.vllm_result(failed=3)).failed == 3
    test = read(samples.vllm_result())
    assert (test.requests, test.failed, test.prompt, test.output) == (320, 10, 1024, 256)
    assert (test.rate, test.clients, test.engine) == (None, 32, "vllm")
    assert (test.ttft.mean, test.tpot.p99) == (0.52, pytest.approx(0.0112))


def test_bursts_and_lengths_of_vllm() -> None:
    test = read(samples.vllm_result(request_rate=4.0, burstiness=0.25, input_lens=[512, 1536], output_lens=[256, 256]))
    assert (test.rate, test.burst, test.spread) == (4.0, 2.0, 0.5)


def test_sglang_takes_the_last_line() -> None:
    test = read(
        samples.sglang_result(max_concurrency=8),
        samples.sglang_result(random_range_ratio=0.0, server_info={"model_path": "a/b", "tp_size": 4}),
    )
    assert (test.rate, test.clients, test.model, test.plan) == (None, 32, "a/b", "tp4")
    assert test.spread == pytest.approx(0.577, abs=1e-3)
    assert "2 results" in test.notes[0]


def test_rates_that_change_are_taken_at_their_mean() -> None:
    for test in (
        read(samples.sglang_result(request_rate="trace", max_concurrency=None)),
        read(samples.vllm_result(ramp_up_strategy="linear", ramp_up_start_rps=1, ramp_up_end_rps=20)),
    ):
        assert test.rate == 10.3
        assert "mean rate" in test.notes[0]


def test_aiperf() -> None:
    test = read(samples.aiperf_result())
    assert (test.software, test.model, test.clients, test.rate) == ("AIPerf", "meta-llama/Meta-Llama-3-8B", 32, None)
    assert (test.ttft.mean, test.tpot.mean, test.spread) == (0.52, pytest.approx(0.0099), 0.5)


def test_the_phase_of_aiperf_that_is_measured() -> None:
    test = read(samples.aiperf_result() | {"input_config": samples.AIPERF_PHASES})
    assert (test.model, test.clients, test.rate, test.burst) == ("meta-llama/Meta-Llama-3-8B", 64, 4.0, 2.0)


def scored(tmp_path: Path, result: dict[str, Any], **given: Any) -> Any:
    (tmp_path / "result.json").write_text(json.dumps(result))
    return ds.validate("serving", str(tmp_path / "result.json"), **given)


def test_a_result_is_scored_against_its_plan(tmp_path: Path) -> None:
    found = scored(tmp_path, samples.vllm_result(), plan="tp1", on="h100")
    assert (found.model, found.slice, found.judged_by) == ("llama3-8b", "h100:1", "the engine vllm")
    rows = {row.name: row for row in found.measures}
    assert rows["mean TTFT"].measured == 0.52
    assert rows["mean TPOT"].inside is (rows["mean TPOT"].low <= 0.0099 <= rows["mean TPOT"].high)
    assert rows["output tokens/s"].measured == 2640.0
    assert found.failed == 10
    assert "32 clients" in found.workload


def test_the_record_is_what_the_schema_says(tmp_path: Path) -> None:
    schema = json.loads(schema_text("validate-run"))["$defs"]["RunScore"]["properties"]
    assert set(scored(tmp_path, samples.vllm_result(), plan="tp1", on="h100").to_dict()) == set(schema)


def test_a_server_twice_as_slow_is_outside(tmp_path: Path) -> None:
    times = {name: value * 2 for name, value in samples.vllm_result().items() if name.endswith("_ms")}
    found = scored(tmp_path, samples.vllm_result(**times, output_throughput=1300.0), plan="tp1", on="h100")
    assert found.inside is False
    assert "mean TPOT is" in found.text


def test_a_plan_file_and_a_command_are_taken(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        'model = "llama3-8b"\nslice = "h100:2"\nengine = "vllm"\nbatch = 64\n\n[plan]\ntensor = 2\n'
    )
    own = scored(tmp_path, samples.vllm_result(), plan=str(tmp_path / "plan.toml"))
    other = scored(tmp_path, samples.vllm_result(), plan="vllm serve meta-llama/Meta-Llama-3-8B -tp 2", on="h100")
    assert own.slice == other.slice == "h100:2"
    assert own.measures[0].expected == pytest.approx(other.measures[0].expected, rel=0.02)


def test_requests_at_a_rate(tmp_path: Path) -> None:
    result = samples.vllm_result(request_rate=4.0, max_concurrency=None, request_throughput=3.9)
    found = scored(tmp_path, result, plan="tp1", on="h100")
    assert "4/s" in found.workload
    assert [row.inside for row in found.measures if row.name == "output tokens/s"] == [None]


@pytest.mark.parametrize(
    ("result", "given", "sentence"),
    [
        (samples.vllm_result(), {}, "does not say how the model was served"),
        ({"a": 1}, {"plan": "tp1"}, "is not the result of a load test"),
        (samples.vllm_result(completed=0), {"plan": "tp1", "on": "h100"}, "holds no request that was answered"),
        (samples.sglang_result(), {"plan": "tp1", "on": "h100"}, "names the model"),
        (samples.vllm_result(), {"plan": "tp1"}, "Say where a replica runs"),
        (samples.vllm_result(), {"plan": "tp1", "on": "h100", "choices": True}, "choices= is for a table"),
    ],
)
def test_one_sentence(tmp_path: Path, result: dict[str, Any], given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        scored(tmp_path, result, **given)
