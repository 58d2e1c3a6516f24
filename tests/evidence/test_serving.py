"""Measured serving runs: what rows mean, how their load is simulated and scored, and what becomes of bad files."""

from dataclasses import replace

import msgspec
import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.rows import Skip
from dragonscale.evidence.serving import (
    Drafted,
    Reused,
    balanced,
    cache_tokens,
    front_seconds,
    gathered,
    predict,
    served_runs,
    step_table,
    validate,
)
from dragonscale.evidence.serving_rows import formats_of, launched_split, published_run, recipes, run_of, split_of

from .measured import DATA, rows_of, write_rows

FILE = DATA / "serving.csv"


@pytest.fixture(scope="module")
def report():
    return validate(FILE)


@pytest.fixture(scope="module")
def rows():
    return rows_of("serving")


@pytest.fixture(scope="module")
def runs():
    return served_runs(FILE)[0]


def changed(run, **columns):
    return replace(run, row=msgspec.structs.replace(run.row, **columns))


def one(runs, *wanted):
    return next(run for run in runs if all(part in run.row.id for part in wanted))


def test_the_record(report):
    found = report.as_json()
    assert found["rows"] == found["scored"] + sum(found["skipped"].values())
    assert found["skipped"] == {
        "the same description was published for runs with and without multi-token prediction": 1
    }
    assert found["tpot"]["mape"] == found["mape"] <= 0.15
    assert found["tpot"]["dense"]["mape"] <= 0.09
    assert found["tpot"]["moe"]["mape"] <= 0.20
    assert found["ttft"]["mape"] <= 0.30
    assert found["ttft"]["rows"] == found["tpot"]["rows"] - 1
    assert list(found["ttft"]["skipped"].values()) == [1]
    assert set(found["by_source"]) == {"vllm", "sglang", "trtllm"}
    assert found["tpot"]["speculative"]["rows"] == 1
    assert all(row.predicted > 0 for row in report.scored)


SPLITS = [
    (("8", "1", "8", "1"), (8, 1, 1)),
    (("64", "1", "8", "8"), (8, 1, 8)),  # TP 8 with EP 8, counted twice
    (("16", "1", "4", "4"), (4, 1, 4)),
    (("1", "64", "8", "8"), (1, 8, 8)),  # the same with attention data parallelism
    (("1", "4", "2", "2"), (1, 2, 2)),
    (("1", "8", "1", "8"), (1, 8, 8)),
    (("4", "4", "1", "16"), (4, 1, 4)),  # vLLM's --enable-expert-parallel
    (("4", "", "2", "2"), (4, 1, 2)),  # NVIDIA's own say what they mean
    (("1", "", "2", "1"), (1, 2, 1)),
    (("4", "", "0", "0"), (4, 1, 1)),
]


@pytest.mark.parametrize(("stated", "meant"), SPLITS)
def test_splits(stated, meant):
    names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    row = dict(zip(names, stated, strict=True)) | {"batch_size": "8"}
    assert split_of(row, True, 8) == meant


def test_a_batch_per_gpu_means_data_parallel_attention():
    row = {"tp_size": "4", "attention_dp_size": "", "moe_tp_size": "1", "moe_ep_size": "4", "batch_size": "28"}
    assert split_of(row, True, 112) == (1, 4, 4)
    assert split_of(row, True, 28) == (4, 1, 4)
    assert split_of(row, False, 28) == (4, 1, 1)


def test_splits_that_disagree():
    row = {"tp_size": "4", "attention_dp_size": "1", "moe_tp_size": "2", "moe_ep_size": "1", "batch_size": "8"}
    with pytest.raises(Skip, match="do not agree"):
        split_of(row, True, 8)


def test_formats():
    assert formats_of("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "", "h100") == {}
    assert formats_of("deepseek-v3", "deepseek-ai/DeepSeek-R1", "fp8", "h200")["compute"] == "fp8_block"
    assert formats_of("llama3.1-70b", "meta-llama/Llama-3.1-70B", "fp8", "h200")["compute"] == "fp8"
    assert formats_of("llama3.1-70b", "meta-llama/Llama-3.1-70B", "fp4", "b200").get("attention") is None
    assert formats_of("deepseek-v3", "deepseek-ai/DeepSeek-R1", "fp4", "b200")["attention"] == "bf16"
    assert formats_of("gpt-oss-120b", "openai/gpt-oss-120b", "fp4", "h100")["compute"] == "bf16"
    with pytest.raises(Skip, match="precision"):
        formats_of("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "int3", "h100")


@pytest.mark.parametrize(
    ("published", "model"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama3.1-8b"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3"),
    ],
)
def test_a_quantised_checkpoint_is_its_model_in_the_formats_of_its_row(rows, published, model):
    row = next(row for row in rows if row["model_path"] == "meta-llama/Llama-3.1-70B") | {"model_path": published}
    row |= dict.fromkeys(("moe_tp_size", "moe_ep_size", "attention_dp_size"), "1") | {
        "tp_size": "1",
        "precision": "fp8",
    }
    assert published_run(row, 2).model == model


def test_recipes_know_what_versions_did(rows):
    row = next(row for row in rows if row["backend_version"] == "1.2.0rc6.post3")
    assert run_of(published_run(row, 2)).drafts == 3
    assert run_of(published_run(row | {"backend_version": "1.2.0rc6.post2"}, 2)).drafts == 0
    apart = row | {"tp_size": "1.0", "attention_dp_size": "8.0", "moe_tp_size": "1.0", "moe_ep_size": "8.0"}
    assert run_of(published_run(apart, 2)).drafts == 1


def test_recipes_say_what_is_inferred_and_why():
    sources = {name: recipe.match.get("source") for name, recipe in recipes().items()}
    assert set(map(tuple, filter(None, sources.values()))) == {("inferencex",), ("aiconfigurator",)}
    assert all(recipe.why for recipe in recipes().values())
    inferred = {name: recipe.inferred.keys() for name, recipe in recipes().items() if recipe.inferred}
    # What a script or NVIDIA's published tools state is not inferred.
    assert not {"llama-70b-vllm", "nvidia-trtllm-narrow-first", "nvidia-sglang-0.5.1"} & inferred.keys()
    assert inferred["nvidia-trtllm"] == {"sequences"}
    # Nobody published how often guesses are right.
    for name, recipe in recipes().items():
        assert bool(recipe.acceptance) <= ("acceptance" in recipe.inferred), name
        unset = set(recipe.inferred) - set(msgspec.structs.asdict(recipe))
        assert not unset, name


def test_a_script_that_sent_512_requests_whatever_was_asked_says_too_little(rows):
    said = {"model_path": "openai/gpt-oss-120b", "system": "h100_sxm", "precision": "fp4", "backend": "vllm"}
    december = rows[0] | said | {"backend_version": "0.11.2", "concurrency": "512"}
    december |= dict.fromkeys(("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "pp_size"), "1")
    with pytest.raises(Skip, match="512 requests were sent at once"):
        published_run(december, 2)
    assert published_run(december | {"concurrency": "64"}, 2).clients == 64


def test_runs_with_an_inferred_setting_are_apart_from_every_overall_error(report, runs):
    whole = report.as_json()
    found = whole["by_recipe"]
    count = sum(bool(run.recipe.inferred) for run in runs)
    assert (found["inferred"]["rows"], found["stated"]["rows"]) == (count, len(runs) - count)
    assert 0 < count < len(runs) == whole["scored"]
    assert found["stated"]["ttft"]["rows"] == found["stated"]["rows"] - 1  # one run without a TTFT to score
    assert whole["mape"] == whole["tpot"]["mape"] == found["stated"]["mape"] != found["inferred"]["mape"]
    assert whole["ttft"]["mape"] == found["stated"]["ttft"]["mape"]
    for part in (whole["tpot"], whole["ttft"]):
        assert part["dense"]["rows"] + part["moe"]["rows"] == part["rows"]
        assert sum(own["rows"] for own in part["by_model"].values()) == part["rows"]
    stated = {run.row.id for run in runs if not run.recipe.inferred}
    assert {row["id"] for row in whole["worst"]} <= stated


def test_without_the_overlap_scheduler_a_prompt_waits_for_one_iteration_less(runs):
    run = one(runs, "trtllm:1.0.0rc3", "llama3.1-8b")
    assert not run.recipe.overlap
    overlapped = replace(run, recipe=msgspec.structs.replace(run.recipe, overlap=True))
    table = step_table([run])
    (first, each), (later, same) = predict(run, table), predict(overlapped, table)
    assert first < 0.98 * later
    assert each == pytest.approx(same, rel=0.05)


def test_budgets(runs):
    assert one(runs, "trtllm", "llama3.1-70b").budget == 16384
    own = one(runs, "trtllm:1.0.0rc3", "llama3.1-8b")
    assert own.budget == own.row.input + own.row.clients + 1500
    drafted = one(runs, "1.2.0rc6.post3")
    assert drafted.budget == drafted.row.input + 4 * drafted.row.clients + 64
    assert one(runs, "vllm", "llama3.1-70b").budget == 8192


def test_splits_that_scripts_choose():
    """dsr1_fp4_b200_trt_slurm.sh and dsr1_fp8_h200_trt_slurm.sh of November 2025: by lengths and clients."""
    four, h200 = recipes()["r1-fp4-trtllm-first-4"], recipes()["r1-trtllm-h200-first"]
    assert launched_split(four, (4, 1, 1), "1024/1024", 32) == (4, 1, 1)
    assert launched_split(four, (4, 1, 1), "1024/1024", 64) == (4, 1, 4)
    assert launched_split(four, (4, 1, 1), "8192/1024", 64) == (1, 4, 4)
    assert launched_split(h200, (8, 1, 1), "1024/8192", 4) == (8, 1, 8)
    assert launched_split(h200, (8, 1, 1), "8192/1024", 64) == (1, 8, 8)


def test_prompts_are_held_back_for_others():
    """Up to the patience of the first, and for half of it where others fill the batch in time."""
    assert gathered(40, 0.1, 1) < gathered(40, 10, 1) < gathered(40, 100, 1) < 40
    assert gathered(40, 10, 1) == 5
    assert gathered(40, 10, 1000) == pytest.approx(40, rel=0.02)  # nobody else comes


def test_ranks_wait_for_each_other():
    """The more ranks the longer; prompts that come thick wait for ranks that take one at a time."""
    few, more = balanced(60, 2, 8, 512.0, 1), balanced(60, 8, 8, 512.0, 1)
    assert few < more < 60
    assert balanced(60, 8, 64, 512.0, 8) <= balanced(60, 8, 64, 512.0, 1)


def test_fewer_clients_wait_less(runs):
    run = one(runs, "vllm", "llama3.1-70b:h200:2x1:1024/1024x16")
    table = step_table([run])
    many = predict(run, table)
    few = predict(changed(run, clients=2), table)
    assert few[0] < many[0]
    assert few[1] < many[1]


def test_holding_prompts_back_costs_time_to_first_token(runs):
    run = one(runs, "trtllm", "llama3.1-70b:h200:2x1")
    table = step_table([run])
    recipe = msgspec.structs.replace(run.recipe, wait=20, budget=4096)
    held = changed(replace(run, recipe=recipe), input=1024, clients=8)
    free = replace(held, recipe=msgspec.structs.replace(held.recipe, wait=0))
    assert front_seconds(held, 0.01, table) > front_seconds(free, 0.01, table) + 0.05
    assert front_seconds(free, 0.5, table) == pytest.approx(front_seconds(free, 0.01, table) + 0.49)


def test_room_for_caches(runs):
    run = one(runs, "vllm", "llama3.1-70b:h200:1x1")
    wide = replace(run, plan=replace(run.plan, kv="bf16"))
    assert 1.9 < cache_tokens(run) / cache_tokens(wide) < 2.1
    tight = replace(run, recipe=msgspec.structs.replace(run.recipe, memory=0.3))
    assert cache_tokens(tight) == 2 * run.row.clients * (run.row.input + run.row.output)


def test_drafts(runs):
    run = one(runs, "1.2.0rc6.post3")
    table = step_table([run])
    guessed = Drafted(table, drafts=3, acceptance=0.5)
    assert guessed.tokens == 1.875
    assert guessed.step(4, 4000.0) > table.step(4, 4000.0)
    assert guessed.run(4, 4000.0, 1) == guessed.step(4, 4000.0)
    for seconds in (0.001, 0.1, 2.0):
        count = guessed.steps_within(4, 4000.0, seconds)
        assert guessed.run(4, 4000.0, count) <= seconds < guessed.run(4, 4000.0, count + 1)
    assert guessed.step(0, 0.0, [(512, 0)]) == table.step(0, 0.0, [(512, 0)])
    assert guessed.transfer(100) == table.transfer(100)
    reused = Reused(table, 0.9)
    assert reused.step(4, 4000.0, [(8192, 0)]) < 0.7 * table.step(4, 4000.0, [(8192, 0)])
    assert reused.run(4, 4000.0, 8) == table.run(4, 4000.0, 8)


BAD = [
    ("backend", "ollama", "no constants for the engine"),
    ("model_path", "nobody/none-1b", "nobody/none-1b"),
    ("pp_size", "2.0", "pipeline"),
    ("silicon_ttft_ms", "", "silicon_ttft_ms is not stated"),
]


@pytest.mark.parametrize(("column", "value", "reason"), BAD)
def test_rows_that_cannot_be_read(rows, column, value, reason):
    with pytest.raises(Skip, match=reason):
        published_run(rows[0] | {column: value}, 2)


def test_clients_are_the_batch_where_they_are_not_stated(rows):
    assert published_run(rows[0] | {"concurrency": "", "batch_size": "7"}, 2).clients == 7
    with pytest.raises(Skip, match="clients"):
        published_run(rows[0] | {"concurrency": "", "batch_size": ""}, 2)


def test_bad_files(tmp_path):
    file = tmp_path / "serving.csv"
    file.write_text("system,backend\nh100,vllm\n")
    with pytest.raises(InputError, match="has no column"):
        validate(file)
    file.write_text(FILE.read_text().splitlines()[0])
    with pytest.raises(InputError, match="no rows"):
        validate(file)


def test_runs_that_are_not_possible(tmp_path, rows):
    odd = rows[0] | {"tp_size": "9.0", "moe_tp_size": "9.0"}
    found = validate(write_rows(tmp_path / "serving.csv", [odd, rows[0]])).as_json()
    assert (found["rows"], found["scored"]) == (2, 1)
    (reason,) = found["skipped"]
    assert reason.startswith("not a possible run: b200:9 is not available")
