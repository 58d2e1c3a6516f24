"""Questions from the issue trackers of frameworks, each answered by one command."""

import json

import pytest

import dragonscale as ds
from dragonscale.errors import InputError

SMALL = {"on": "h100:16", "prompts": 16, "samples": 8, "output": "2k", "mean_output": 800, "stack": "nemo-rl"}


def plans(model="llama3-8b", **words):
    return ds.rl(model, **(SMALL | words))


def best(model="llama3-8b", **words):
    found = plans(model, **words).best
    assert found is not None
    return found


@pytest.fixture(scope="module")
def all_ways():
    return plans(top=20)


@pytest.fixture(scope="module")
def colocated():
    return best(mode="colocated")


def test_does_the_weight_transfer_run_out_of_memory(colocated):
    # new weights, old weights and the cache on one chip: the trainer's state goes to the host first
    assert colocated.offloaded_bytes > 0
    assert max(colocated.train_hbm_bytes, colocated.rollout_hbm_bytes) <= colocated.hbm_limit_bytes
    large = plans("llama3-70b", on="h100:4", mode="colocated")
    assert large.best is None


def test_how_many_gpus_should_generate():
    found = plans(on="h100:32", mode="one-step-off")
    assert {row.rollout_chips for row in found.plans} == {8, 16, 24}
    assert found.best is not None
    assert found.best.step_s == min(row.step_s for row in found.plans)


def test_is_async_worth_it(all_ways):
    by_mode = {row.mode: row.tokens_per_s_per_chip for row in reversed(all_ways.plans)}
    assert {"colocated", "one-step-off", "async"} <= set(by_mode)
    told = {change.what.split()[0]: change.gain for change in all_ways.changes}
    for mode, gain in told.items():
        if mode in by_mode:
            assert gain == pytest.approx(by_mode[mode] / all_ways.best.tokens_per_s_per_chip - 1, abs=0.01)


def test_are_fp8_rollouts_worth_it(colocated):
    narrow = best(mode="colocated", rollout_dtype="fp8")
    assert narrow.phase("generation") < colocated.phase("generation")
    # NeMo-RL sends bf16 weights, which its engine casts
    assert narrow.phase("weight transfer") == colocated.phase("weight transfer")


def test_what_do_answers_of_32k_cost(colocated):
    long = best("llama3.1-8b", mode="colocated", output="32k", mean_output=8000)
    assert long.step_s > 5 * colocated.step_s
    assert long.tail_s > 0


def test_which_phase_is_slow_and_is_that_normal(colocated):
    assert sum(phase.exposed_s for phase in colocated.phases) == pytest.approx(colocated.step_s)
    assert colocated.step_low_s < colocated.step_s < colocated.step_high_s


def test_what_does_a_slow_tool_cost(colocated):
    assert best(mode="colocated", turns=5, tool_s="2s").step_s == pytest.approx(colocated.step_s + 8.0, rel=0.01)


def test_can_other_chips_generate():
    row = best(on="h100:8", rollout_on="h20:8", mode="one-step-off", price="h100=2/h,h20=1/h")
    assert (row.train_chips, row.rollout_chips, row.rollout_chip) == (8, 8, "h20")
    assert row.cost_usd_per_step == pytest.approx((8 * 2 + 8 * 1) * row.step_s / 3600)
    with pytest.raises(InputError, match="rollout_on="):
        plans(rollout_on="h20")


def test_how_old_do_weights_get_over_a_run():
    run = plans(mode="async", ratio=0.5, staleness=2, steps=30, seed=3).run
    assert run is not None
    assert run.steps == 30
    assert run.trained in (30 * 128, 31 * 128)  # the last batch may be under way
    assert run.staleness_max <= 2
    assert run.step_s == pytest.approx(run.planned_s, rel=0.2)


def test_what_do_failures_and_fewer_engines_cost():
    asked = {"mode": "one-step-off", "ratio": 0.5, "steps": 20}
    calm, failing = plans(**asked).run, plans(mtbf="2min", **asked).run
    assert calm is not None
    assert failing is not None
    assert failing.failures > 0
    assert failing.step_s > calm.step_s
    with pytest.raises(InputError, match="engines="):
        plans(engines="ten", **asked)


def test_where_does_the_time_go_over_a_run(tmp_path):
    file = tmp_path / "run.json"
    plans(mode="colocated", steps=5).save_timeline(str(file))
    names = {event["name"] for event in json.loads(file.read_text())["traceEvents"]}
    assert {"logprob and update", "weight transfer", "step 5"} <= names


def test_what_does_dynamic_sampling_cost(colocated):
    thrice = best(mode="colocated", oversample=3)
    assert thrice.phase("generation") > 1.05 * colocated.phase("generation")
    assert thrice.phase("update") == colocated.phase("update")
    with pytest.raises(InputError, match="oversample="):
        plans(oversample=2, steps=5)


def test_does_a_critic_fit_beside_the_policy(colocated):
    both = best(mode="colocated", algorithm="ppo")
    assert both.feasible
    assert both.step_s > colocated.step_s
    assert both.phase("critic") > both.phase("update")
