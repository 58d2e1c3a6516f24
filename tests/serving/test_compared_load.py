"""Comparisons of serving under a load, and the words for fewer."""

import re

import pytest

import dragonscale as ds


def test_sides_share_a_load_and_fewer_is_part_of_the_first():
    """NVIDIA/TensorRT-LLM#1144: pipelines serve 3 requests/s of a 13B model more slowly than tensor parallelism."""
    report = ds.compare(
        "tp4", "tp2 pp2", model="llama2-13b", on="a100-40gb:4", engine="trtllm", rate="3/s", requests=300
    )
    first, second = report.sides
    assert first.value("at 3/s: requests/s") > second.value("at 3/s: requests/s")
    assert first.value("at 3/s: p90 of a request") < second.value("at 3/s: p90 of a request")
    assert report.winner == first.key
    tokens = second.value("tokens/s/chip") / first.value("tokens/s/chip")
    (fewer,) = re.findall(r"(\d+)% fewer tokens/s", report.differences[0].text)
    assert int(fewer) == round(100 * (1 - tokens))
    longer = re.findall(r"takes (\d+)% longer", report.differences[0].text)
    assert longer == [f"{100 * (report.differences[0].ratio - 1):.0f}"]


def test_data_of_a_dense_model_is_replicas():
    report = ds.serve("llama3-8b", on="h100:8", engine="vllm", plan="dp8", batch="4")
    assert report.configs[0].copies == 8
    assert any("8 replicas" in note for note in report.asked.notes)


def test_a_burst_is_timed_as_a_whole():
    """600 requests at 40/s of which none ends before the last has come."""
    report = ds.simulate(
        "llama3-70b",
        on="h100:4",
        plan="tensor=4",
        engine="vllm",
        rate="200/s",
        requests="300",
        prompt="128",
        output="256",
    )
    assert report.load.is_burst
    assert report.rates.requests_per_s * report.simulated_s == pytest.approx(300, rel=0.01)
