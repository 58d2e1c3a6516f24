"""`dscale rl`: the answer's keys, what it tells, and what it refuses."""

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.physics.units import render

LONG = ["--on", "h100:16", "--prompts", "32", "--samples", "8", "--output", "32k", "--stack", "nemo-rl"]
SMALL = {"on": "h100:16", "prompts": 32, "samples": 8, "output": "2k", "stack": "nemo-rl"}


@pytest.fixture(scope="module")
def report():
    return ds.rl("llama3-8b", mean_output=800, **SMALL)


def test_the_answer_has_its_keys_and_the_best_way_first(report):
    found = report.to_dict()
    assert {"model", "slice", "algorithm", "plans"} <= set(found)
    names = "mode train rollout train_chips rollout_chips step_s step_low_s step_high_s phases tokens_per_s_per_chip"
    assert {*names.split(), "staleness", "hbm_bytes", "cost_usd_per_step", "stack"} <= set(found["plans"][0])
    assert set(found["plans"][0]["phases"][0]) == {"name", "seconds", "exposed_s"}
    rates = [row["tokens_per_s_per_chip"] for row in found["plans"] if row["feasible"]]
    assert rates == sorted(rates, reverse=True)
    for row in found["plans"]:
        assert sum(one["exposed_s"] for one in row["phases"]) == pytest.approx(row["step_s"])
        assert row["step_low_s"] <= row["step_s"] <= row["step_high_s"]


def best(model="llama3-8b", **words):
    found = ds.rl(model, **words).best
    assert found is not None
    return found


def test_it_costs_what_all_its_chips_cost_for_a_step():
    paid = best(mean_output=800, mode="colocated", price="2/h", **SMALL)
    assert paid.cost_usd_per_step == pytest.approx(2 * 16 * paid.step_s / 3600)


def test_text_tells_plan_step_bound_and_next_command(report):
    text = str(report)
    for word in (
        "plan",
        "trainer",
        "engine",
        "step",
        "phases",
        "memory",
        "bound by",
        "dscale serve llama3-8b --on h100:",
    ):
        assert word in text
    assert "nemo-rl" in text


def test_the_step_is_as_published_ones_went_and_orders_the_ways():
    report = ds.rl("qwen3-32b", on="h100:32")
    likely = [row.likely_s for row in report.plans if row.feasible and not row.tight]
    assert len(likely) > 2
    assert likely == sorted(likely)
    first = report.best
    assert first is not None
    assert first.cost_usd_per_step is not None
    assert first.likely_s > 1.2 * first.step_s  # verl, whose published steps took a quarter longer
    text = " ".join(str(report).split())
    assert f"step {render(first.likely_s, 's')} expected" in text
    assert f"${first.cost_usd_per_step * first.likely_s / first.step_s:,.2f} a step" in text


def test_changes_are_told_with_what_they_gain(report):
    first = report.best
    for change in report.changes:
        other = next((row for row in report.plans if change.what.startswith(row.mode)), None)
        if other is not None:
            assert change.gain == pytest.approx(first.step_s / other.step_s - 1, abs=0.01)
    assert any(change.what.startswith("colocated") for change in report.changes) or first.mode == "colocated"


def test_a_lower_cap_is_advised_where_it_cuts_few_answers():
    asked = {**SMALL, "mode": "colocated"}
    few, many = (ds.rl("llama3.1-8b", **(asked | {"output": "16k", "mean_output": mean})) for mean in (1000, 12000))
    caps = [[change for change in report.changes if "cap" in change.what] for report in (few, many)]
    assert [change.what for change in caps[0]] == ["cap answers at 8,192 tokens (0% are longer)"]
    assert caps[0][0].gain > 0
    assert not caps[1]


def test_fp8_rollouts_are_advised_where_the_chip_multiplies_fp8():
    asked = {**SMALL, "mode": "colocated", "output": "4k", "mean_output": 2000}
    hopper, ampere = (ds.rl("llama3-8b", **(asked | {"on": on})).changes for on in ("h100:16", "a100:16"))
    (gain,) = (change.gain for change in hopper if "fp8" in change.what)
    assert 0 < gain < 1
    assert not [change for change in ampere if "fp8" in change.what]


def test_lengths_come_from_a_file(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(["300"] * 9 + ["5000"]))
    found = ds.rl("llama3-8b", lengths=str(file), mode="colocated", **SMALL)
    assert found.mean_output == pytest.approx((9 * 300 + 2048) / 10)


def test_a_reward_model_a_sandbox_and_fp8_rollouts_count():
    asked = {"mean_output": 800, "mode": "colocated", **SMALL}
    plain, judged = (
        best(**asked),
        best(reward="llama3-8b", reward_s="7s", **asked),
    )
    assert plain.phase("reward") == 0
    assert judged.phase("reward") == pytest.approx(7 + plain.phase("logprob"), rel=0.01)
    narrow = best(rollout_dtype="fp8", **asked)
    assert narrow.phase("generation") < plain.phase("generation")


def test_nothing_that_fits_is_an_answer():
    found = ds.rl("llama3-70b", on="h100:2", stack="nemo-rl", mode="colocated", output="1k")
    assert found.best is None
    assert found.exit_code == 3
    assert f"{found.fits_on} holds it" in " ".join(str(found).split())
    held = ds.rl("llama3-70b", on=found.fits_on, stack="nemo-rl", mode="colocated", output="1k")
    assert held.exit_code == 0


def test_a_chip_without_a_number_is_the_smallest_slice_that_holds_the_step():
    found = ds.rl("qwen3-4b", on="h100", stack="nemo-rl", mode="colocated", output="1k")
    assert found.exit_code == 0
    assert f"{found.slice} is the smallest slice of" in " ".join(found.notes_beside)
    assert not found.best.tight


def test_a_chip_that_no_slice_of_holds_the_step_is_said_so_once():
    small = {"set": "hbm_capacity=0.1GB", "stack": "nemo-rl", "mode": "colocated", "output": "1k"}
    found = ds.rl("qwen3-0.6b", on="a10g", prompts=4, samples=2, **small)
    assert found.exit_code == 3
    assert "is the smallest slice of" not in " ".join(found.notes_beside)
    text = " ".join(str(found).split())
    assert f"No slice that was tried holds the step, the largest {found.slice}; there no plan" in text
    assert "larger slices" not in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"stack": "ray"}, "framework of reinforcement learning"),
        ({"algorithm": "sarsa"}, "algorithm"),
        ({"mode": "sync"}, "mode"),
        ({"stack": "trl", "mode": "async"}, 'does not run mode="async"'),
        ({"rollout_on": "h20"}, "write how many chips, such as h20:8"),
        ({"mean_output": 5000}, "at most output="),
        ({"updates": 10000}, "more than the"),
        ({"prompts": 10**6}, "at most 65,536"),
        ({"rollout_dtype": "int1"}, "format of rollouts"),
        ({"rollout_dtype": "fp8", "on": "a100:16"}, "vllm does not generate in fp8 on NVIDIA A100"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(words, told):
    with pytest.raises(InputError, match=told):
        ds.rl("llama3-8b", **(SMALL | words))


def test_answers_beyond_the_context_are_planned_and_said_so(capsys):
    assert main(["rl", "llama3-8b", *LONG]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "has a context of 8,192 tokens, and prompt and output are 33,280" in told
    assert "Positions are taken as extended here." in told


def test_tpus_are_planned_without_a_framework():
    found = best(on="v5p:2x2x4", prompts=32, samples=8, output="1k", mode="colocated")
    assert found.stack == "generic"


def test_a_config_that_is_not_there_is_said_so():
    with pytest.raises(InputError, match="There is no file"):
        ds.rl(plan="nowhere/run.sh", on="h100")
