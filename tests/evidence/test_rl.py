"""Measured steps of reinforcement learning and weight transfers: how rows are read, and how near predictions are."""

from pathlib import Path

import pytest

from dragonscale.evidence import rl
from dragonscale.evidence.rows import Skip, read_table
from dragonscale.physics.hardware import Slice
from dragonscale.simulation.rl.frameworks import framework
from dragonscale.simulation.rl.ways import search_steps

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def rows():
    return {row["id"]: row for row in read_table(DATA / "rl.csv")[1]}


@pytest.fixture(scope="module")
def report():
    return rl.validate(DATA / "rl.csv").as_json()


def test_a_row_is_read_as_it_ran(rows):
    case = rl.step_of(rows["nemorl-0.6-08"])
    assert (case.plan.mode, case.plan.job.slice.chips, case.plan.pool.chips) == ("one-step-off", 16, 16)
    assert (case.plan.train.expert, case.plan.train.pipe, case.plan.rollout.tensor) == (8, 2, 2)
    assert (case.work.prompts, case.work.samples, case.work.updates) == (64, 32, 4)
    assert case.work.prompt == 3358 - 3201
    assert case.work.lengths.cap == 4096 - case.work.prompt
    assert case.plan.framework.share_split == 0.8
    assert case.work.reference
    assert case.work.old


def test_staleness_is_of_asynchronous_runs_alone(rows):
    assert rl.step_of(rows["nemorl-0.6-09"]).plan.ahead == 8.0
    assert rl.step_of(rows["nemorl-0.6-08"]).plan.ahead == 0.0


@pytest.mark.parametrize(
    ("name", "reason"), [("verl-fa7b-32-colo", "mean length"), ("verl-fa7b-128-stream", "no plan of the mode")]
)
def test_rows_that_lack_something_are_left_out_with_a_reason(rows, name, reason):
    with pytest.raises(Skip, match=reason):
        rl.step_of(rows[name])


def test_a_mean_length_follows_from_the_rate_of_a_step(rows):
    row = rows["nemorl-0.6-08"] | {"mean_seq": "", "mean_response_len": "", "tokens_per_s_per_chip": "1413"}
    whole = 1413 * 152 * 32 / 2048
    assert rl.step_of(row).work.lengths.mean == pytest.approx(whole - rl.PROMPT)
    with pytest.raises(Skip, match="mean length"):
        rl.step_of(row | {"tokens_per_s_per_chip": ""})


def test_what_a_source_leaves_to_its_frameworks_scripts(rows):
    dtensor = rl.step_of(rows["nemorl-0.3-7"]).plan.train
    assert (dtensor.tensor, dtensor.fsdp, dtensor.remat) == (8, 8, "block")
    assert rl.step_of(rows["nemorl-0.3-7"] | {"model": "llama3-8b"}).plan.train.tensor == 1
    assert (
        rl.step_of(rows["nemorl-0.6-08"] | {"framework": "verl", "activation_recompute": ""}).plan.train.remat
        == "block"
    )
    assert rl.step_of(rows["nemorl-0.6-08"]).plan.train.remat == "none"


@pytest.mark.parametrize(
    ("mode", "read"),
    [
        ("colocated async (colocate_async)", ("colocated", 1.0)),
        ("sync; separate GPUs with vLLM", ("separate", 0.0)),
        ("separate_async 2+2 nodes", ("async", 1.0)),
    ],
)
def test_modes_by_other_names(rows, mode, read):
    plan = rl.step_of(rows["nemorl-0.6-08"] | {"mode": mode, "max_staleness_steps": ""}).plan
    assert (plan.mode, plan.ahead) == read


def test_images_are_left_out_and_decoupled_losses_return_log_probabilities(rows):
    with pytest.raises(Skip, match="images"):
        rl.step_of(rows["nemorl-0.6-08"] | {"algorithm": "GRPO Geo3K (images)"})
    row = rows["nemorl-0.6-07"] | {"framework": "verl"}
    assert rl.step_of(row).plan.framework.token_s("colocated") == 0.0
    assert rl.step_of(row | {"logprob_recompute": "yes (decoupled PPO)"}).plan.framework.token_s("colocated") > 0.0


def test_steps_and_phases_are_scored(report):
    assert (report["rows"], report["scored"]) == (7, 5)
    assert report["median_ape"] < 0.4
    assert report["phases"]["generation"]["rows"] == 2
    assert report["phases"]["generation"]["median_ape"] < 0.2
    assert report["band"]["nominal"] == 0.8
    assert report["choices"]["groups"] == 2
    assert {"colocated", "one-step-off", "async"} == set(report["by_mode"])


def test_both_log_probabilities_are_held_against_one_figure(rows):
    case = rl.step_of(rows["nemorl-0.3-5"])
    step = rl.judge(case)
    measured, expected = rl.phase_pairs(case, step)["logprob"]
    assert measured == 18.0
    assert expected == pytest.approx(step.phase("logprob") + step.phase("reference"))


def test_weight_transfers_are_scored_by_their_method():
    found = rl.validate(DATA / "weight_sync.csv").as_json()
    assert (found["rows"], found["scored"]) == (5, 4)
    assert set(found["by_method"]) == {"bucketed", "broadcast", "packed", "reshard"}
    assert found["median_ape"] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("names", [("nemorl-0.6-07", "nemorl-0.6-08"), ("nemorl-0.3-5", "nemorl-0.3-7")])
def test_the_recommended_way_is_at_least_as_fast_as_the_measured_ones(rows, names):
    measured = [rl.judge(rl.step_of(rows[name])) for name in names]
    piece = Slice(measured[0].plan.job.slice.chip, (measured[0].plan.chips,))
    found = search_steps(measured[-1].work, piece, [framework("nemo-rl")])[0]
    assert found.fits
    assert found.rate >= max(step.rate for step in measured)
    # NeMo-RL's Megatron has a distributed optimizer, and no shards of weights
    assert (found.plan.train.zero, found.plan.job.stack.name) == (1, "megatron-rl")
