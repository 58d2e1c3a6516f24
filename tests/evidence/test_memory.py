"""Measured memory: what rows mean, how peaks and outcomes are scored."""

import pytest

from dragonscale.evidence.memory import published_run, run_of, validate
from dragonscale.evidence.rows import Skip
from dragonscale.training.search.headroom import peaks
from tools.fit_peaks import Peak, measured_peaks, table
from tools.refit import MEASURED

from .measured import write_rows

FILE = MEASURED / "memory.csv.gz"
ROW = dict.fromkeys(
    [
        "id",
        "source",
        "path",
        "framework",
        "model",
        "layers",
        "d_model",
        "d_ff",
        "n_heads",
        "n_kv_heads",
        "vocab",
        "chip",
        "n_chips",
        "tp",
        "pp",
        "vpp",
        "cp",
        "ep",
        "dp",
        "zero_or_fsdp",
        "micro_batch",
        "global_batch",
        "seq",
        "remat",
        "precision",
        "optimizer",
        "grad_dtype",
        "method",
        "peak_memory_gib",
        "memory_kind",
        "date",
        "notes",
    ],
    "",
)
TITAN = ROW | {
    "id": "a",
    "source": "torchtitan",
    "framework": "torchtitan",
    "model": "Llama 3.1 8B",
    "layers": "32",
    "d_model": "4096",
    "d_ff": "14336",
    "n_heads": "32",
    "n_kv_heads": "8",
    "vocab": "128256",
    "chip": "H100-80GB",
    "n_chips": "8",
    "tp": "1",
    "dp": "8",
    "zero_or_fsdp": "FSDP2",
    "micro_batch": "1",
    "seq": "8192",
    "remat": "selective",
    "precision": "bf16",
    "optimizer": "AdamW",
    "method": "pretrain",
    "peak_memory_gib": "47.65",
    "memory_kind": "max_reserved",
    "date": "2025-06",
    "notes": "compile",
}


@pytest.fixture(scope="module")
def found():
    return validate(FILE).as_json()


def test_peaks_are_close(found):
    assert found["scored"] >= 230
    assert found["median_ape"] <= 0.04
    assert found["mape"] <= 0.06
    assert set(found["by_method"]) == {"pretrain", "full", "lora", "qlora"}
    assert all(part["median_ape"] <= 0.05 and part["mape"] <= 0.08 for part in found["by_method"].values())
    large = [part for part in found["by_source"].values() if part["rows"] >= 12]
    assert all(part["median_ape"] <= 0.11 for part in large)


def test_runs_that_ran_fit_and_those_that_ran_out_are_refused(found):
    ran, out = found["outcomes"]["ran"], found["outcomes"]["oom"]
    assert ran["fit"] >= 0.95 * ran["rows"]
    assert out["refused"] >= 0.8 * out["rows"]


def test_rows_that_say_how_fast_they_ran_score_times(tmp_path):
    """Once a run: rows of what its allocator had reserved repeat the rate."""
    allocated = TITAN | {"memory_kind": "max_allocated", "tokens_per_s_per_chip": "6600", "notes": "compile"}
    reserved = TITAN | {"id": "b", "tokens_per_s_per_chip": "6600"}
    times = validate(write_rows(tmp_path / "rows.csv", [allocated, reserved])).as_json()["times"]
    assert times["rows"] == 1
    assert times["median_ape"] < 0.3
    assert set(times["by_stack"]) == {"torchtitan-2025"}


def test_what_a_row_means():
    row = published_run(TITAN, 2)
    assert (row.stack, row.plan, row.batch) == ("torchtitan-2025", "fsdp=8,remat=selective", 8)
    assert run_of(row).job.model.n_layers == 32
    assert published_run(TITAN | {"notes": "no compile"}, 2).stack == "torchtitan-eager"
    modules = TITAN | {
        "framework": "Megatron-LM",
        "zero_or_fsdp": "ZeRO-1",
        "notes": "recompute_modules=moe_act,layernorm",
    }
    assert published_run(modules, 2).plan == "fsdp=8,remat=moe_act+layernorm,zero=1"
    assert published_run(modules | {"pp": "4", "micro_batch": "8"}, 2).plan.startswith("fsdp=2,pipe=4,microbatch=8")


def test_torchtitan_splits_the_batch_of_a_rank_over_its_pipeline():
    piped = TITAN | {"pp": "4", "micro_batch": "8"}
    for date, plan in (("2024-12-26", "fsdp=2,pipe=4,microbatch=2"), ("2025-06", "fsdp=2,pipe=4,remat")):
        row = published_run(piped | {"date": date}, 2)
        assert row.plan.startswith(plan)
        assert row.batch == 16


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "peft-ia3"}, "no model of training by peft-ia3"),
        ({"memory_kind": ""}, "counter"),
        ({"memory_kind": "nvidia-smi"}, "driver"),
        ({"seq": ""}, "seq not stated"),
        ({"remat": ""}, "recompute not stated"),
        ({"framework": "nobody's"}, "no software stack"),
        ({"zero_or_fsdp": "odd"}, "no reading of the sharding"),
        ({"model": "Some MoE"}, "experts not stated"),
        ({"chip": "abacus"}, "unknown chip"),
    ],
)
def test_what_is_left_out_has_a_reason(changes, reason):
    with pytest.raises(Skip, match=reason):
        published_run(TITAN | changes, 2)


def test_how_far_peaks_were_above_what_was_predicted():
    """A source with many runs counts as much as one with few; a family leans on others, and needs enough runs."""
    many = [Peak("megatron", "a", 1.0 + 0.001 * place) for place in range(40)]
    few = [Peak("torchtitan", "b", 1.0 + 0.1 * place) for place in range(10)]
    found = table([*many, *few, Peak("hf", "b", 1.0)])
    assert set(found) == {"all", "megatron", "torchtitan"}
    assert found["all"] == (51, pytest.approx(1.8**1.5 - 1))
    # 40 of 56 parts are its own and 16 the other source's, of whose eleven runs the last is 2.6%
    assert found["megatron"] == (40, pytest.approx(1.8**1.5 - 1))
    assert found["torchtitan"] == (10, pytest.approx(1.8**1.5 - 1))


def test_headroom_is_written_from_the_measured_peaks():
    written = {name: (row["runs"], row["over"]) for name, row in peaks().items()}
    assert written == {
        name: (runs, pytest.approx(over, abs=5e-4)) for name, (runs, over) in table(measured_peaks()).items()
    }
