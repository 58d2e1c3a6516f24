"""Measured inference runs: what rows mean, how they are predicted and scored, and what becomes of bad files."""

from dataclasses import replace

import msgspec
import numpy
import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.inference import (
    choices,
    decode_seconds,
    deployment_of,
    full_load,
    inference_cases,
    passes,
    predict,
    prefill_seconds,
    room,
    steady,
    validate,
)
from dragonscale.evidence.inference_rows import case_of, engine_of, limits_of, published_case
from dragonscale.evidence.rows import Skip
from dragonscale.evidence.score import by, statistics_of
from dragonscale.models.transformer import count_parameters
from dragonscale.serving.engine.engine import adjust, load_engine

from .measured import DATA, by_id

FILE = DATA / "inference.csv"


@pytest.fixture(scope="module")
def report():
    return validate(FILE)


@pytest.fixture(scope="module")
def cases():
    return {case.row.id: case for case in inference_cases(FILE)[0]}


@pytest.fixture(scope="module")
def rows():
    return by_id("inference")


def read(row):
    return case_of(published_case(row, 2))


def changed(case, **columns):
    return replace(case, row=msgspec.structs.replace(case.row, **columns))


def test_a_row_may_state_the_sequences_and_the_memory(cases):
    """Instead of the engine's own limits, and clients run under their engine's own scheduler."""
    case = cases["IN-TPUV-006"]
    own, fewer = (deployment_of(changed(case, sequences=count)).engine for count in (0, 16))
    assert (fewer.scheduling.max_sequences, own.scheduling) == (16, case.engine.scheduling)
    assert deployment_of(changed(case, memory_share=0.5)).engine.memory.share == 0.5
    assert predict(changed(case, sequences=16)) < 0.7 * predict(case)
    apart = replace(case, engine=adjust(case.engine, scheduling={"mixed": False, "max_tokens": 1024}))
    assert predict(apart) != pytest.approx(predict(case), rel=1e-3)


def test_the_record(report):
    found = report.as_json()
    assert found["rows"] == 39
    assert found["scored"] == 33
    assert found["skipped"] == {
        "does not fit the memory of its chips": 1,
        "isl not stated": 2,
        "layers not stated": 1,
        "n_chips not stated": 1,
        "the source's labels are suspected to be wrong": 1,
    }
    assert found["latencies"]["rows"] + found["rates"]["rows"] == found["scored"]
    assert found["plan_chosen"]["rows"] + found["plan_stated"]["rows"] == found["scored"]
    assert found["assumed"]["how the model is split"] == found["plan_chosen"]["rows"] == 4
    assert found["memory"]["rows"] == 2
    assert found["memory"]["mape"] <= 0.2
    assert set(found["by_scenario"]) == {row.group for row in report.scored}


def test_errors_are_small(report):
    found = report.as_json()
    assert found["latencies"]["median_ape"] <= 0.12
    assert found["latencies"]["mape"] <= 0.18
    assert found["rates"]["median_ape"] <= 0.20
    groups = by(report.scored, lambda row: row.id[3:7])
    assert statistics_of(groups["FT-0"] + groups["FT-2"] + groups["FT-3"])["mape"] <= 0.09
    assert statistics_of(groups["DSEP"])["mape"] <= 0.15


def test_plans_of_rows(cases):
    assert str(cases["IN-FT-078"].plan) == "tensor=8,pipe=3"
    assert str(cases["IN-TRTF-458"].plan) == "data=8,expert=8,weights=fp8,kv=fp8,compute=fp8"  # attention by batch
    assert str(cases["IN-TRTF-423"].plan) == "tensor=4,weights=nvfp4,kv=fp8,compute=nvfp4"
    assert cases["IN-TPUV-006"].plan.tensor == 4  # eight JAX devices are four chips
    assert str(cases["IN-POPE-002"].plan) == "tensor=16,width=4,spread=batch,weights=int8"
    assert cases["IN-POPE-007"].plan.data == 32
    assert cases["IN-DSEP-004"].plan.compute == "fp8_block"
    assert cases["IN-MLPI-014"].plan is None


def test_models_of_rows(cases):
    assert cases["IN-FT-213"].model.tied
    assert not cases["IN-TRTF-140"].model.tied
    assert cases["IN-TRTS-140"].model.layers[0].parallel  # Falcon adds both halves at once
    assert not cases["IN-TRTS-029"].model.layers[0].parallel
    assert count_parameters(cases["IN-TRTS-140"].model).total == pytest.approx(178.55e9, rel=1e-3)


def test_columns_of_sizes_leave_a_vision_tower_out(cases):
    for case in cases.values():
        seeing = any(part.name.startswith("vision.") for part in case.model.extras)
        assert seeing == case.row.model.startswith("Llama 4")


def test_what_was_measured(cases):
    assert cases["IN-TRTS-154"].row.measured == pytest.approx(0.0238)
    assert cases["IN-DSEP-007"].row.measured == pytest.approx(0.09191)
    assert cases["IN-DSEP-007"].row.batch == 256 * 72
    assert cases["IN-DSEP-004"].row.measured == pytest.approx(218172.16)
    assert cases["IN-DSEP-004"].row.tokens_per_pass == 16384
    assert (cases["IN-JETS-010"].row.slots, cases["IN-JETS-010"].row.cache_length) == (96, 2048)
    assert (cases["IN-TPUV-006"].row.clients, cases["IN-TPUV-006"].row.requests, cases["IN-TPUV-006"].row.spread) == (
        64,
        320,
        0.8,
    )


@pytest.mark.parametrize(
    ("source", "engine"),
    [
        ("NVIDIA/FasterTransformer docs/gpt_guide.md", "fastertransformer"),
        ("NVIDIA/TensorRT-LLM performance doc v0.5.0 (fork)", "trtllm-0.5"),
        ("NVIDIA/TensorRT-LLM docs/source/blogs/x.md (v0.7a, H200 FP8)", "trtllm-0.9"),
        ("NVIDIA/TensorRT-LLM docs perf-overview.md v0.14.0", "trtllm-0"),
        ("NVIDIA/TensorRT-LLM docs/source/performance/perf-overview.md v0.20", "trtllm"),
        ("NVIDIA/TensorRT-LLM docs/source/performance/perf-overview.md v1.0 (commit)", "trtllm"),
        ("mlcommons/inference_results_v5.1 closed/RedHat/results/XE8640_4xH100_vLLM/llama3.1-8b/Server", "vllm"),
        ("google/jetstream-pytorch benchmarks/summary.md", "jetstream"),
    ],
)
def test_engines_of_sources(source, engine):
    assert engine_of(source) == (engine, ())


@pytest.mark.parametrize(
    ("source", "notes", "engine"),
    [
        ("Own measurements: PyTorch 2.11, CUDA graphs", "torch.compile'd pointwise work", "torch-compiled"),
        ("Own measurements: PyTorch 2.11", "eager, no graphs", "torch-eager"),
        ("Own measurements: PyTorch 2.11", "", "torch"),
        ("a loop in JAX", "", "jax"),
    ],
)
def test_loops_of_ones_own(source, notes, engine):
    assert engine_of(source, notes) == (engine, ())


def test_an_unknown_engine_is_assumed(rows):
    case = read(rows["IN-TRTS-029"] | {"source": "somebody's own engine", "notes": ""})
    assert (case.row.engine, case.row.marks) == ("torch", ("the engine",))
    assert predict(case) > 0
    server = published_case(rows["IN-TRTF-140"] | {"source": "somebody's own engine", "notes": ""}, 2)
    assert (server.engine, server.marks) == ("generic", ("the engine",))


def test_what_follows_without_being_stated(rows):
    bare = {"osl": "", "tp": "", "dp": "", "pp": "", "kv_dtype": "", "act_dtype": "bf16", "weight_dtype": "bf16"}
    step = rows["IN-TRTS-201"] | bare
    case = read(step | {"chip": "h200", "tpot_ms": "", "total_latency_s": "0.004"})
    assert str(case.plan) == "tensor=1"
    assert (case.row.measured, case.row.output, case.row.kv) == (0.004, 1, "bf16")
    prompt = rows["IN-TRTS-184"] | bare
    assert read(prompt).plan.tensor == 8
    assert read(prompt).row.marks == ("tensor parallelism",)


def test_limits_of_mlperf():
    assert limits_of("llama2-70b-99.9", "mlperf_interactive")[1] == 0.040
    assert limits_of("llama2-70b-99.9", "mlperf_offline") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scenario": "dreaming"}, "no model of the scenario 'dreaming'"),
        ({"scenario": ""}, "scenario not stated"),
        ({"batch": ""}, "batch not stated"),
        ({"isl": ""}, "isl not stated"),
        ({"osl": ""}, "osl not stated"),
        ({"total_latency_s": "-3"}, "latency not stated"),
        ({"n_chips": ""}, "n_chips not stated"),
        ({"weight_dtype": ""}, "weight_dtype not stated"),
        ({"weight_dtype": "fp7"}, "no model of serving in 'fp7'"),
        ({"tp": "4"}, "parallel sizes do not multiply to the number of chips"),
        ({"chip": "z80"}, "unknown chip 'z80'"),
        ({"d_model": ""}, "d_model not stated"),
        ({"layers": "99999999"}, "more layers than any model has"),
    ],
)
def test_rows_that_lack_something(rows, change, reason):
    with pytest.raises(Skip, match=f"^{reason}$"):
        published_case(rows["IN-TRTS-029"] | change, 2)


def test_a_pipeline_takes_its_prompts_in_parts(cases):
    assert passes(256, 128, 3, 2048) == 16
    assert passes(16, 128, 3, 2048) == 1
    assert passes(6, 20, 3, 2048) == 3
    own = deployment_of(cases["IN-FT-078"])
    one, two = prefill_seconds(own, 16, 128), prefill_seconds(own, 32, 128)
    assert two == pytest.approx(one * 4 / 3)  # the second part follows one stage behind


def test_static_batches_grow(cases):
    case = cases["IN-FT-213"]
    longer, wider = changed(case, output=2 * case.row.output), changed(case, batch=64)
    assert predict(longer) > 1.9 * predict(case)
    assert predict(case) < predict(wider) < 64 * predict(case)


def test_query_heads_that_do_not_share_a_cache(cases):
    case = cases["IN-TRTS-189"]
    newer = replace(case, engine=load_engine("trtllm-0.9"))
    step, shared = (decode_seconds(deployment_of(one), 512, 128, 2048) for one in (case, newer))
    assert step > 1.5 * shared


def test_full_load_is_bound_by_memory(cases):
    case = cases["IN-TRTF-140"]
    own = deployment_of(case)
    assert room(own, 4096) < room(own, 2176) <= 2048
    state = steady(own, numpy.array([8.0, 64.0, 256.0]), case.row.prompt, case.row.output)
    assert numpy.all(numpy.diff(state.tokens) > 0)
    assert numpy.all(numpy.diff(state.tpot) > 0)
    few = changed(case, clients=8)
    assert full_load(few, case.plan) == pytest.approx(float(state.tokens[0]))


def test_limits_on_latency_cost_throughput(cases):
    server = cases["IN-MLPI-008"]
    free = changed(server, ttft_limit=0.0, tpot_limit=0.0)
    first, each = limits_of("llama3.1-405b", "mlperf_interactive")
    strict = changed(server, ttft_limit=first, tpot_limit=each)
    assert predict(strict) < predict(server) < predict(free)
    assert all(server.piece.chips % plan.chips == 0 for plan in choices(server))


def test_a_torus_is_not_cut_up(cases):
    case = replace(cases["IN-TPUV-006"], plan=None)
    assert [plan.chips for plan in choices(case)] == [4]
    assert predict(case) > 0


def test_what_does_not_fit(cases):
    with pytest.raises(Skip, match="does not fit the memory"):
        predict(cases["IN-JETS-008"])


def test_bad_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        validate(tmp_path / "none.csv")
    lacking = tmp_path / "lacking.csv"
    lacking.write_text("id,chip\n1,h100\n")
    with pytest.raises(InputError, match="has no column source, n_chips"):
        validate(lacking)
    empty = tmp_path / "empty.csv"
    empty.write_text(FILE.read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError, match="no rows"):
        validate(empty)


def test_requests_that_are_all_queued_run_in_waves(cases):
    """Half a wave more takes as long as a whole one more, up to what its smaller batch saves."""
    case = next(case for case in cases.values() if case.row.scenario == "max_throughput" and case.row.requests)
    most = int(room(deployment_of(case), case.row.prompt + case.row.output))
    rates = [full_load(changed(case, requests=round(most * waves)), case.plan) for waves in (0.5, 1.0, 1.5, 100.5)]
    assert rates[0] < rates[1]
    assert rates[2] < rates[1]
    endless = full_load(changed(case, requests=0), case.plan)
    assert rates[1] == pytest.approx(endless, rel=1e-6)
    assert rates[3] == pytest.approx(endless, rel=0.01)


def test_what_sources_say_of_all_their_runs(cases):
    assert {case.row.requests for case in cases.values() if case.row.scenario == "max_throughput"} >= {3000}
    assert {
        case.row.model: case.row.tokens_per_pass for case in cases.values() if case.row.engine == "trtllm-mlperf"
    }.items() <= {"llama2-70b-99.9": 3584, "llama3.1-405b": 1536, "llama3.1-8b": 12000}.items()


def test_an_eight_bit_cache_is_read_as_well_as_a_wide_one_where_the_engine_says_so(cases):
    case = next(one for one in cases.values() if one.row.engine == "trtllm-0" and one.row.kv == "fp8")
    own = deployment_of(case)
    plain = deployment_of(replace(case, engine=adjust(case.engine, kernels={"even_caches": False})))
    assert decode_seconds(own, 256, 2048, 2) < decode_seconds(plain, 256, 2048, 2)
