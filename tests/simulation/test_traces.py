"""Recorded traffic: the samples, what the formats mean, and files that are wrong."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.simulation import (
    ClosedLoop,
    Fixed,
    Fleet,
    LinearTimes,
    Pool,
    Scheduler,
    ServedRequest,
    SimulationOptions,
    Uniform,
    read_trace,
    simulate,
    trace_format,
)
from dragonscale.simulation.trace_files import TraceText

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"
TIMES = LinearTimes(0.02, 2e-5, 1e-8, 5e-5)
CHUNKED = Scheduler("chunked", sequences=4)


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


def test_clients_of_a_record_wait_for_a_slower_fleet_too(tmp_path: Path) -> None:
    """The record of a closed loop replayed on its own fleet is the same run; on one half as fast nobody queues."""
    clients = ClosedLoop(4, 60, Fixed(200), Uniform(20, 60), think_s=0.01, ramp_s=0.5)
    runs = [simulate(Fleet(Pool(TIMES, 100_000, CHUNKED)), clients, SimulationOptions(keep=True)).served]
    path = tmp_path / "record.jsonl"
    keys = ("timestamp", "input_length", "output_length", "ttft_s", "tpot_s")
    rows = [
        (1e3 * r.arrival_s, r.input_tokens, r.output_tokens, r.ttft_s, r.tpot_s) for r in sorted_by_arrival(runs[0])
    ]
    path.write_text("\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in rows))
    traffic = read_trace(path)
    assert len(traffic.after) == 56
    slow = replace(TIMES, fixed_s=2 * TIMES.fixed_s)
    runs += [
        simulate(Fleet(Pool(t, 100_000, CHUNKED)), traffic, SimulationOptions(keep=True)).served for t in (TIMES, slow)
    ]
    own, again, late = (sorted_by_arrival(run) for run in runs)
    for name in ("arrival_s", "ttft_s", "tpot_s"):
        assert [getattr(r, name) for r in again] == pytest.approx([getattr(r, name) for r in own], abs=1e-6)
    assert max(r.ttft_s for r in late) < 3.1 * slow.step(3, 1000, [(200, 0)])


def sorted_by_arrival(served: Sequence[ServedRequest]) -> list[ServedRequest]:
    return sorted(served, key=lambda request: request.arrival_s)


HEADER = "arrival_s,input_tokens,output_tokens\n"


def test_a_row_has_no_more_columns_than_the_first_line_names(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEADER}0,100,10{',7' * 5_000_000}\n")
    with pytest.raises(InputError, match=r"Line 2 .* has 5,000,003 columns, and its first line names 3"):
        read_trace(path)
    with pytest.raises(InputError, match=r"Line 3 .* has 4 columns"):
        read_trace(written(tmp_path, f"{HEADER}0,100,10\n1,100,10,7\n"))
    assert read_trace(written(tmp_path, f"{HEADER}0,100,10,,\n1,100,10\n")).requests == 2, "a comma at the end"


@pytest.mark.parametrize("start", [HEADER, '{"timestamp": 0, "input_length": 10, "output_length": 5}\n'])
def test_a_line_without_an_end_is_refused(tmp_path: Path, start: str) -> None:
    path = written(tmp_path, start)
    with path.open("ab") as file:
        file.truncate(60 << 30)  # a sparse file
    with pytest.raises(InputError, match=r"Line 2 .* is longer than 16 MiB"):
        read_trace(path)


def test_a_pasted_trace_with_a_wrong_row_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="Line 2 of the trace 'mine' is"):
        read_trace(TraceText.named("mine", f"{HEADER}0,ten,10\n"))
