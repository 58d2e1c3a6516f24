"""A job is answered from Python as it is from the command line: without flags, a question or text."""

from dataclasses import replace
from typing import Any

import pytest

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.format_notes import refused_notes
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_target
from dragonscale.serving.advice import levers
from dragonscale.serving.advice.bills import config_bills, memory_use, step_terms
from dragonscale.serving.advice.curves import batch_curves, meeting_batch, plan_curves
from dragonscale.serving.advice.formats import FormatRequest, pinned_formats
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.pools import search_pools, why_no_pools
from dragonscale.serving.advice.refusals import possible
from dragonscale.serving.advice.remedies import ServingChange, remedies
from dragonscale.serving.advice.search import check_plan, nearest, paced_search, ranked, ranked_by_format, search
from dragonscale.serving.advice.unfit import why_unfit
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.frontier import Ask, Config
from dragonscale.serving.steady.narrowing import PACE_S


def job(model: str, *on: str, tpot: float | None = None, **fields: Any) -> ServingJob:
    """A job on some chips or slices."""
    return ServingJob(
        model=load_model(model),
        targets=tuple(parse_target(name) for name in on),
        ask=Ask(prompt=512, output=64, tpot=tpot),
        goals={},
        engine=fields.pop("engine", "vllm"),
        limits=LaunchLimits(),
        **fields,
    )


@pytest.fixture(scope="module")
def small() -> ServingJob:
    return job("llama3-8b", "h100:1", tpot=0.02)


@pytest.fixture(scope="module")
def configs(small: ServingJob) -> list[Config]:
    return search(small)


def test_the_best_configuration_meets_the_targets(small: ServingJob, configs: list[Config]) -> None:
    best = ranked(small, configs)[0]
    assert best.meets
    assert float(best.state.tpot) <= 0.02
    assert best.hbm_bytes <= best.piece.chip.visible


def test_terms_add_up_to_the_step_and_memory_to_the_chip(small: ServingJob, configs: list[Config]) -> None:
    best = ranked(small, configs)[0]
    terms = step_terms(config_bills(small, best)["decode"])
    assert sum(term.expected_s for term in terms) == pytest.approx(best.decode_s)
    assert sum(memory_use(small, best).parts().values()) == pytest.approx(best.piece.chip.visible)


def test_without_a_target_the_pace_is_kept_or_twice_the_quickest() -> None:
    paced = paced_search(job("llama3-8b", "h100:1", tpot=PACE_S))
    assert paced.tpot == PACE_S
    quickest = min(float(config.state.tpot) for config in paced.configs)
    strict = paced_search(job("llama3-8b", "h100:1", tpot=quickest / 10))
    assert strict.tpot == pytest.approx(2 * quickest)
    assert any(config.meets for config in strict.configs)


def test_a_remedy_is_what_the_changed_job_finds() -> None:
    """Twice the chips bring the next token sooner than one of them can."""
    strict = job("llama3-8b", "h100:1", tpot=0.004)
    best = nearest(strict.ask, search(strict), 1)[0]
    assert not best.meets
    changes = {remedy.change: remedy for remedy in remedies(strict, best)}
    more_chips = changes[ServingChange.SLICE]
    assert more_chips.suffices
    assert more_chips.config.chips > 1
    on_slice = replace(strict, targets=((more_chips.config.piece.chip, more_chips.config.piece),))
    assert any(config.place == more_chips.config.place for config in search(on_slice))
    narrower = changes[ServingChange.QUANTIZE].config
    assert narrower.plan.weights in ("fp8", "int8", "int4")


def test_what_is_missing_is_what_the_model_needs_beyond_the_chip() -> None:
    why = why_unfit(job("llama3-70b", "h100:1"))
    assert why.division is None
    assert why.shortage is not None
    assert why.shortage.is_memory
    assert why.shortage.needed_bytes > 2 * 70e9  # weights in bf16
    assert why.shortage.usable_bytes < why.shortage.slice_.chip.visible
    assert why.larger_slice is not None
    assert search(job("llama3-70b", str(why.larger_slice.piece)))
    assert why.narrower is not None
    assert why.smaller_batch is None


def test_heads_that_do_not_divide_have_neighbours_that_do() -> None:
    seven = why_unfit(job("llama3-70b", "h100:7")).division
    assert seven is not None
    assert not seven.heads_divide
    assert [config.chips for config in seven.neighbours] == sorted(config.chips for config in seven.neighbours)
    assert all(seven.heads % config.plan.tensor == 0 for config in seven.neighbours)


def test_chips_that_no_engine_runs_on_are_left_out() -> None:
    both = job("llama3-8b", "h100:1", "v5e:1", engine="trtllm")
    allowed = possible(both)
    assert [chip.name for chip, _ in allowed.targets] == ["h100"]
    assert [chip.name for chip in allowed.refused_chips] == ["v5e"]
    assert not allowed.is_nothing
    alone = possible(job("llama3-8b", "v5e:1", engine="trtllm"))
    assert alone.is_nothing
    assert possible(job("llama3-8b", "v5e:1", engine="trtllm", force=True)).refusals == []


def test_a_plan_that_the_model_cannot_be_split_by_is_refused() -> None:
    with pytest.raises(ValueError, match="does not divide the 32 heads"):
        check_plan(job("llama3-8b", "h100:8"), parse_serving_plan("tp3"))


def test_formats_follow_from_what_is_fixed() -> None:
    chip, _ = parse_target("h100:1")
    model = load_model("llama3-8b")
    fp8 = pinned_formats(FormatRequest(dtype="fp8"), "vllm", chip, model)
    assert (fp8.weights, fp8.kv) == ("fp8", "fp8")
    cache_alone = pinned_formats(FormatRequest(kv="fp8"), "vllm", chip, model)
    assert (cache_alone.weights, cache_alone.compute, cache_alone.kv) == ("bf16", "bf16", "fp8")
    assert not FormatRequest(quantize="any").is_pinned


def test_narrower_formats_are_ranked_apart() -> None:
    both = job("llama3-8b", "h100:1", tpot=0.02, formats=FormatRequest(quantize="any"))
    by_format = ranked_by_format(both, search(both))
    assert {config.plan.weights for config in by_format.native} == {"bf16"}
    assert "bf16" not in {config.plan.weights for config in by_format.narrower}


def test_a_gain_is_the_ratio_of_tokens(small: ServingJob, configs: list[Config]) -> None:
    low = min((config for config in configs if config.meets), key=lambda config: config.batch)
    gain = levers.next_batch(low, levers.larger_batches(low, configs))
    assert gain is not None
    assert gain.config.batch >= levers.LARGER * low.batch
    assert gain.config.tokens_per_chip == pytest.approx((1 + gain.fraction) * low.tokens_per_chip)
    narrower = levers.narrower_weights(small, low)
    assert narrower is not None
    in_formats = levers.gain_in_formats(small, low, narrower)
    assert in_formats is not None
    assert in_formats.fraction > levers.WORTH
    assert in_formats.config.batch == low.batch


def test_a_launch_that_is_full_is_tried_with_twice_the_sequences() -> None:
    full = replace(job("llama3-8b", "h100:1", tpot=0.05), engine="vllm,scheduling.max_sequences=16")
    best = max(search(full), key=lambda config: config.batch)
    (launch,) = levers.launch_gains(full, best)
    assert (launch.setting, launch.value) == ("max_seqs", 32)
    assert launch.job.limits.max_seqs == 32
    assert launch.gain.config.batch > best.batch


def test_curves_pass_through_the_configurations(small: ServingJob, configs: list[Config]) -> None:
    best = ranked(small, configs)[0]
    deployment = Deployment(small.model, best.piece, best.plan, small.engine_on(best.piece.chip))
    curves = batch_curves(small, deployment, best.batch, best.most)
    assert curves.at(curves.expected, best.batch) == pytest.approx(best.decode_s)
    meeting = meeting_batch(curves.configs)
    assert meeting is not None
    assert meeting >= best.batch
    plans = plan_curves(small, (str(best.piece), str(best.plan))).plans
    assert plans[0][0].place == best.place


def test_pools_are_searched_where_they_are_asked_for() -> None:
    apart = job("llama3-8b", "h100:2", tpot=0.02, disaggregate=True)
    pools = search_pools(apart)
    assert pools
    assert all(pool.chips >= 2 for pool in pools)
    assert search_pools(replace(apart, disaggregate=None)) == []
    assert why_no_pools(replace(apart, disaggregate=False)) == ""


def test_chips_that_are_left_out_of_the_catalogue_are_named() -> None:
    """Beyond a few reasons the chips are named instead, those that are left out and not those that stay."""
    asked = read_question(ServeQuestion("llama3-8b", on="any", engine="trtllm", dtype="fp8"))
    allowed = possible(asked)
    (note,) = refused_notes(replace(asked, targets=allowed.targets), allowed, is_nothing=False)
    names = {name.strip(" .") for name in note.partition(": ")[2].split(",")}
    assert names == {chip.name for chip in allowed.refused_chips}
    assert "v100" in names
    assert "h100" not in names
