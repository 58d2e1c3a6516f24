"""Measured collectives: what rows mean, how they are scored, and what becomes of bad files."""

import csv
import json
import random

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.collectives import collective_cases, predict, validate
from dragonscale.evidence.described import read_network, read_torus
from dragonscale.evidence.score import Scored, report_of, statistics_of, write_scores
from dragonscale.physics.collectives.cost import Options, collective_time

from .measured import DATA, rows_of, write_rows


@pytest.fixture(scope="module")
def published():
    return validate(DATA / "collectives.csv")


@pytest.fixture(scope="module")
def cases():
    return {case.row.id: case for case in collective_cases(DATA / "collectives.csv")[0]}


def test_every_row_is_scored_or_skipped_with_its_reason(published):
    assert published.rows == 16
    assert published.skipped == {
        "number of slices not stated": 1,
        "message size not stated": 1,
        "not a collective: gemm": 1,
    }
    assert {row.id for row in published.scored} >= {"dispatch", "normal", "gather", "psum", "racks"}


def test_long_messages_are_within_a_fifth(published):
    for row in published.scored:
        assert row.ape < 0.2, row


def test_the_record_is_the_stable_json(published):
    record = published.as_json()
    assert json.loads(json.dumps(record)) == record
    assert {"rows", "scored", "skipped", "mape", "median_ape", "bias", "within_10pct", "by_source", "worst"} <= set(
        record
    )
    assert set(record["worst"][0]) == {"id", "measured", "predicted", "ape"}
    apes = [row["ape"] for row in record["worst"]]
    assert apes == sorted(apes, reverse=True)
    network = record["by_network"]["nvlink4"]
    assert {"rows", "median_ape", "mape", "large"} <= set(network)
    assert {"rows", "median_ape", "mape"} <= set(network["large"])


def test_bus_bandwidth_says_the_same_as_the_time(cases):
    assert cases["dgx-8-bus"].row.seconds == pytest.approx(cases["dgx-8"].row.seconds, rel=0.01)


def test_wires_come_from_the_text_or_from_the_chip(cases):
    def egress(name: str) -> float:
        return cases[name].parts[0][1].levels[1].bandwidth

    assert egress("p4de") == 50e9
    assert egress("p5") == 400e9
    assert egress("one-nic") == egress("no-rate") == 50e9
    assert egress("racks") == 3.6e12
    assert cases["racks"].parts[0][1].levels[0].degree == 72
    assert cases["p4de"].profile.fabric.name == "ampere-nodes"
    assert cases["one-nic"].network == "one-nic"


def test_tpu_rows_count_the_bytes_that_each_chip_receives(cases):
    volume, group = cases["gather"].parts[0]
    assert volume == pytest.approx(402653184 * 4 / 3)
    assert [axis.size for axis in group.axes] == [2, 2]
    assert cases["psum"].row.seconds == pytest.approx(2 * 606076928 * 255 / 256 / 235.7595e9)


def test_tokens_become_bytes(cases):
    volume, _ = cases["dispatch"].parts[0]
    assert volume == 64 * 128 * 8 * 7168 * (1 + 4 / 128)
    assert len(cases["normal"].parts) == 2


def test_no_measurement_beats_the_bound(cases):
    for case in cases.values():
        options = Options(exact=True, in_network=True)
        bound = max(
            collective_time(case.row.collective, volume, group, options).bandwidth for volume, group in case.parts
        )
        assert case.row.seconds > bound, case.row.id
        assert predict(case) > bound, case.row.id


def test_kernel_tables():
    report = validate(DATA / "kernels.csv")
    assert len(report.scored) == 5
    assert report.skipped == {
        "no model of the library 'homegrown_1.0'": 1,
        "number of GPUs, bytes or latency not a number": 1,
        "unknown chip 'warp_core'": 1,
    }
    assert statistics_of(report.scored)["median_ape"] < 0.1
    assert {row.group for row in report.scored} == {"nvlink4", "nvlink5", "nvlink4 trtllm", "nvlink4 vllm_eager"}


def test_scores_are_written(published, tmp_path):
    write_scores(published, tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(published.scored)
    assert set(rows[0]) == {"id", "measured", "predicted", "ape"}
    with pytest.raises(InputError, match="cannot be written"):
        write_scores(published, tmp_path / "no" / "such" / "folder.csv")


def test_statistics():
    rows = [Scored("a", "s", 1.0, 1.2), Scored("b", "s", 1.0, 0.9), Scored("c", "s", 1.0, 1.05)]
    found = statistics_of(rows)
    assert found["mape"] == pytest.approx(0.35 / 3)
    assert found["median_ape"] == pytest.approx(0.1)
    assert found["bias"] == pytest.approx(0.05)
    assert report_of([], ["x", "x"]).as_json()["skipped"] == {"x": 2}


@pytest.mark.parametrize(
    ("text", "local", "egress", "transport"),
    [
        ("p4de: NVLink3 + EFA 4x100Gb/s per node", 8, 50e9, "efa"),
        ("p5en NVLink4 + 16x200Gb/s EFA", 8, 400e9, "efa"),
        ("8 x 400 Gbps InfiniBand", 8, 400e9, "ib"),
        ("NVL4 + 8x400Gb RDMA (DGX H100)", 8, 400e9, ""),
        ("NVLink4 + 8x NDR", 8, 400e9, "ib"),
        ("HGX + 8x200G RoCE v2", 8, 200e9, "roce"),
        ("3.2Tb/s per node", 8, 400e9, ""),
        ("3200Gb/s EFA", 8, 400e9, "efa"),
        ("CX7 400Gb/s IB", 8, 400e9, "ib"),
        ("1 GPU + RDMA NIC (400Gb/s) per node", 1, 50e9, ""),
        ("25 GB/s per node Ethernet", 8, 25e9, "roce"),
        ("NVLink5/NVSwitch (p6-b200)", 8, 0, ""),
        ("NVLink3 (300GB/s/dir)", 8, 0, ""),
        ("H800 ~160GB/s usable", 8, 0, ""),
        ("20x NVL72 + IB", 72, 0, "ib"),
        ("", 8, 0, ""),
        ("x" * 10_000, 8, 0, ""),
    ],
)
def test_texts_about_networks(text, local, egress, transport):
    wires = read_network(text)
    assert wires.egress(local) == pytest.approx(egress)
    assert wires.transport == transport


@pytest.mark.parametrize(
    ("text", "shape"),
    [("Ironwood 2x2x1 ICI", (2, 2, 1)), ("v6e-256 16x16 torus", (16, 16)), ("v5p:4x4x4", (4, 4, 4)), ("ICI", ())],
)
def test_texts_about_tori(text, shape):
    assert read_torus(text) == shape


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_ranks": "many", "n_nodes": "multi"}, "number of ranks not stated"),
        ({"n_ranks": "1", "ranks_per_node": "1"}, "a single rank"),
        ({"n_ranks": "9", "ranks_per_node": "9"}, "more ranks than a node of NVIDIA H100 SXM 80GB holds"),
        ({"n_ranks": "24"}, "ranks, nodes and ranks per node disagree"),
        ({"bytes": "-3"}, "message size not stated"),
        ({"bytes": "nan"}, "message size not stated"),
        ({"time_us": "soon", "algbw_GBps": "", "busbw_GBps": "inf"}, "neither a time nor a bandwidth stated"),
        ({"chip": "abacus"}, "unknown chip 'abacus'"),
        ({"chip": "sm90 (h100/h800)"}, "chip not stated or more than one"),
        ({"collective": "broadcast"}, "no model of the collective 'broadcast'"),
        ({"chip": "v5e", "interconnect": "ICI"}, "topology of the torus not stated"),
        ({"chip": "v5e", "interconnect": "4x4", "n_ranks": "7"}, "number of ranks does not match the torus"),
        ({"collective": "moe_dispatch"}, "tokens, hidden size or experts per token not stated"),
    ],
)
def test_what_is_missing_is_never_guessed(tmp_path, changes, reason):
    report = validate(write_rows(tmp_path / "row.csv", [rows_of("collectives")[0] | changes]))
    assert report.skipped == {reason: 1}
    assert report.as_json()["mape"] is None


def test_bad_files_are_one_sentence(tmp_path):
    def refused(content: bytes, message: str) -> None:
        file = tmp_path / "bad.csv"
        file.write_bytes(content)
        with pytest.raises(InputError, match=message) as error:
            validate(file)
        assert len(str(error.value)) < 600
        assert "\n" not in str(error.value)

    refused(b"", "is empty")
    refused(b"\n\n", "is empty")
    refused(b"a,b,c\n1,2,3\n", "has no column chip, source, kind, collective")
    refused(b"system,impl\nh100_sxm,nccl\n", "has no column op_name")
    refused((DATA / "kernels.csv").read_bytes().splitlines()[0] + b"\n", "no rows")
    refused(random.Random(1).randbytes(10_000_000), "is not text|has no column")
    refused(b"x" * 10_000_000, "is not CSV|has no column")
    with pytest.raises(InputError, match="cannot be read"):
        validate(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="cannot be read"):
        validate(tmp_path)


def test_garbage_in_cells_never_breaks(tmp_path):
    """Any cell may hold anything: the row is scored or skipped."""
    junk = ["", "nan", "1e400", "-1", "0", "x" * 5000, "∞", "3.7", "1,024", "\x00", "[]", "2x2x2x2"]
    rows = rows_of("collectives")
    chance = random.Random(7)
    mixed = [{**row, chance.choice(list(row)): chance.choice(junk)} for row in rows for _ in range(20)]
    report = validate(write_rows(tmp_path / "junk.csv", mixed))
    assert report.rows == len(mixed)
    assert all(row.predicted > 0 for row in report.scored)
