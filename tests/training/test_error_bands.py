"""How wide the error band of a step is, and what half a network does to a job."""

from dataclasses import replace

import pytest

from dragonscale.training.advice.explanations import _machine_changes  # pyright: ignore[reportPrivateUsage]
from dragonscale.training.cost.evaluation import tuned
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.tuning import Tuning
from dragonscale.training.search.error_bands import job_band
from tests.training.plans import job_of

PLAN = parse_plan("fsdp=64")


def test_the_band_is_wider_where_no_such_run_is_published() -> None:
    job = job_of(stack="torchtitan")
    published = job_band(job, PLAN)
    with_adapters = job_band(tuned(job, Tuning("lora", 16)), PLAN)
    many = job_of("h100:65536", batch=65536, stack="torchtitan")
    unpublished = job_band(many, parse_plan("fsdp=65536"))
    for wider in (with_adapters, unpublished):
        assert wider.low < published.low < 0 < published.high < wider.high
    assert "with lora is in our data" in with_adapters.sentence
    assert "with more than" in unpublished.sentence
    assert "times that of" not in published.sentence


def test_half_the_network_is_half_of_every_tier_between_nodes() -> None:
    job = job_of()
    (change,) = _machine_changes(job, PLAN)
    before, after = (one.slice.chip.network.levels for one in (job, change.job))
    assert [slow.bandwidth / fast.bandwidth for slow, fast in zip(after, before, strict=True)] == pytest.approx(
        [1.0, *[0.5] * (len(before) - 1)]
    )
    inside = replace(job_of("h100:8"), batch=8)
    assert not list(_machine_changes(inside, parse_plan("fsdp=8")))
