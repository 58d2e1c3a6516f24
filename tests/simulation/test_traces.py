"""Recorded traffic: the samples, what the formats mean, and files that are wrong."""

import gzip
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.simulation import (
    Fleet,
    LinearTimes,
    Pool,
    SimulationOptions,
    read_trace,
    simulate,
    trace_format,
    trace_lengths,
)

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"
TIMES = LinearTimes(0.02, 2e-5, 1e-8, 5e-5)


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("azure_sample.csv", "azure", 240),
        ("burstgpt_sample.csv", "burstgpt", 238),
        ("mooncake_sample.jsonl", "mooncake", 200),
        ("plain_sample.csv.gz", "plain", 300),
    ],
)
def test_the_samples_are_told_apart_and_run(name: str, kind: str, count: int) -> None:
    assert trace_format(SAMPLES / name) == kind
    traffic = read_trace(SAMPLES / name)
    assert traffic.requests == count
    result = simulate(Fleet(Pool(TIMES, 200_000, replicas=2, share_prefixes=True)), traffic)
    assert result.outcome.finished == count
    assert (result.cache_hit_rate > 0.2) == (kind == "mooncake")


def test_rows_mean_what_they_say(tmp_path: Path) -> None:
    azure = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 "
        "18:15:50.9951690,396,109\n"
    )
    burst = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation "
        "log\n45,GPT-4,10,0,10,API log\n118.5,GPT-4,7,3,10,API log\n"
    )
    moon = (
        '{"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}\n{"timestamp": 27982, '
        '"input_length": 512, "output_length": 1, "hash_ids": [46]}\n'
    )
    for text, expected in (
        (azure, [(0.0, 374, 44, ()), (4.314579, 396, 109, ())]),
        (burst, [(0.0, 472, 18, ()), (113.5, 7, 3, ())]),
        (moon, [(0.0, 600, 52, (46, 47)), (0.5, 512, 1, (46,))]),
    ):
        requests = list(read_trace(written(tmp_path, text)).start(0)[0])
        assert [each.number for each in requests] == [0, 1]
        for request, (time, tokens, output, blocks) in zip(requests, expected, strict=True):
            assert request.arrival_s == pytest.approx(time)
            assert request[2:5] == (tokens, output, blocks)


def test_time_zones_and_crlf(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,1,2\r\n2024-05-10 "
        "00:00:01+00:00,3,4\r\n"
    )
    times = [each.arrival_s for each in read_trace(written(tmp_path, text)).start(0)[0]]
    assert times == pytest.approx([0.0, 0.99007])


def test_a_trace_can_be_faster_shorter_and_repeated() -> None:
    traffic = read_trace(SAMPLES / "azure_sample.csv", speed=4.0).first(50)
    last = list(traffic.start(0)[0])[-1]
    slow = list(read_trace(SAMPLES / "azure_sample.csv").start(0)[0])[49]
    assert last.arrival_s == pytest.approx(slow.arrival_s / 4)
    fleet = Fleet(Pool(TIMES, 200_000))
    assert simulate(fleet, traffic, SimulationOptions(keep=True)) == simulate(
        fleet, traffic, SimulationOptions(keep=True)
    )


def test_lengths_of_a_trace_can_be_drawn() -> None:
    prompt, output = trace_lengths(SAMPLES / "plain_sample.csv.gz")
    assert len(prompt.seen) == len(output.seen) == 300


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("a,b,c\n1,2,3\n", "begins with"),
        ("arrival_s,input_tokens,output_tokens\n", "has no request"),
        ("arrival_s,input_tokens,output_tokens\n0,x,3\n", "Line 2"),
        ("arrival_s,input_tokens,output_tokens\n0,1\n", "Line 2"),
        ("arrival_s,input_tokens,output_tokens\n0,1,1\n5,-1,3\n", "Line 3.*negative"),
        ("arrival_s,input_tokens,output_tokens\nnan,1,1\n", "Line 2.*finite"),
        ("arrival_s,input_tokens,output_tokens\n2,1,1\n1,1,1\n", "Line 3.*sort"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "Line 2"),
        ('{"timestamp": 1, "input_length": "many"}\n', "Line 1.*Mooncake"),
        ('{"timestamp": 1, "input_length": 5, "output_length"\n', "Line 1.*Mooncake"),
    ],
)
def test_wrong_files_are_said_in_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_trace(written(tmp_path, text))


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path)
    damaged = tmp_path / "a.csv.gz"
    damaged.write_bytes(gzip.compress(b"arrival_s,input_tokens,output_tokens\n0,1,1\n" * 1000)[:60])
    with pytest.raises(InputError, match="damaged"):
        read_trace(damaged)
    binary = tmp_path / "b.csv"
    binary.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(InputError, match="not text"):
        read_trace(binary)
    with pytest.raises(InputError, match="times its speed"):
        read_trace(SAMPLES / "azure_sample.csv", speed=0.0)
