"""Speed per chip changes smoothly with the number of chips: no stack, plan or law makes a cliff."""

import itertools

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space

LIGHT = Space(remat=("none",), zero=(1, 3), schedule=("1f1b", "interleaved"), fixed={"microbatch": 1})
SIZES = (1024, 2016, 4032, 4096)
"""About twice as many each; the last two are neighbours, and one is no power of two."""
NEAR, DOUBLED = 0.05, 0.07
"""What a chip may lose or gain between 4,032 and 4,096 chips, and over twice as many."""


def job_of(model: str, chips: int, batch: int) -> Job:
    return make_job(load_model(model), parse_slice(f"h100:{chips}"), batch, 8192, "megatron-core")


def per_chip(job: Job) -> float:
    """Tokens a second of a chip under the recommended plan."""
    return job.tokens / search(job, LIGHT, 1).best[0].seconds / job.slice.chips


@pytest.mark.parametrize(("model", "share"), [("llama3-8b", 1), ("llama3-70b", 2), ("llama3.1-405b", 4)])
def test_weak_scaling_has_no_jump(model: str, share: int) -> None:
    speeds = {chips: per_chip(job_of(model, chips, chips // share)) for chips in SIZES}
    for one, other in itertools.pairwise(SIZES):
        allowed = NEAR if other < 1.1 * one else DOUBLED
        assert abs(speeds[other] / speeds[one] - 1) < allowed, (one, other, speeds)


@pytest.mark.parametrize("model", ["llama3-8b", "llama3.1-405b"])
def test_strong_scaling_never_loses_and_bends_once(model: str) -> None:
    """With the same batch more chips are never slower, and what a doubling brings falls without a cliff."""
    sizes = (1024, 2048, 4096, 8192)
    totals = [per_chip(job_of(model, chips, 2048)) * chips for chips in sizes]
    gains = [after / before for before, after in itertools.pairwise(totals)]
    assert min(gains) > 1.2, gains
    assert max(gains) < 2.1, gains
    assert all(after > 0.8 * before for before, after in itertools.pairwise(gains)), gains
