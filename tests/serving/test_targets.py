"""Targets as people write them, and what the planner makes of each."""

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.serving.space.frontier import Ask
from dragonscale.serving.steady.targets import read_target


@pytest.mark.parametrize(
    ("text", "seconds", "statistic"),
    [
        ("500ms", 0.5, "mean"),
        ("mean:500ms", 0.5, "mean"),
        ("p95:1s", 1.0, "p95"),
        (" P99 : 40ms ", 0.04, "p99"),
        ("p50:2min", 120.0, "p50"),
        ("p90:1.5s", 1.5, "p90"),
    ],
)
def test_a_target_is_a_time_and_a_statistic(text: str, seconds: float, statistic: str) -> None:
    assert read_target(text, "--ttft") == (pytest.approx(seconds), statistic)


@pytest.mark.parametrize(
    "text", ["p97:1s", "95:1s", "median:1s", "p95:", "p95:1s:2s", ":1s", "p95", "1", "p95:0s", "0s"]
)
def test_what_is_no_target_is_refused_by_its_flag(text: str) -> None:
    with pytest.raises(InputError, match="--ttft is") as refused:
        read_target(text, "--ttft")
    assert str(refused.value).count(".") <= 2
    assert text != "p95" or "p95:1s" in str(refused.value)


def test_a_plain_time_has_the_usual_statistic_and_nothing_is_no_target() -> None:
    assert read_target("1s", "--ttft", "p95") == (1.0, "p95")
    assert read_target("mean:1s", "--ttft", "p95") == (1.0, "mean")
    assert read_target(" ", "--ttft") is None


def test_gaps_and_whole_requests_are_judged_by_their_means() -> None:
    ask = Ask(100, 11, ttft=1.0, itl=0.1, e2e=1.8)
    assert ask.times(0.9, 0.08) == {"ttft": (0.9, 1.0), "itl": (0.08, 0.1), "e2e": (pytest.approx(1.7), 1.8)}
    assert ask.met_by(0.9, 0.08)
    assert not ask.met_by(0.9, 0.095)  # 1.85 s in all
    assert not ask.met_by(0.5, 0.11)
    assert Ask(100, 1, tpot=1e-6, e2e=1.0).met_by(0.9, 1.0)  # an answer of one token has no time per token
    assert (Ask(1, 2, tpot=0.2, itl=0.1).step, Ask(1, 2).step) == (0.1, None)


@pytest.mark.parametrize("target", ["itl", "e2e"])
def test_such_a_target_bounds_the_batch(target: str) -> None:
    free = ds.serve("llama3-8b", on="h100:1", output=256)
    limit = {"itl": free.best.tpot_s / 2, "e2e": free.best.latency_s / 2}[target]
    found = ds.serve("llama3-8b", on="h100:1", output=256, **{target: f"{limit}s"})
    assert found.best.batch < free.best.batch
    assert 0.9 * limit < {"itl": found.best.tpot_s, "e2e": found.best.latency_s}[target] <= limit


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("llama3-8b", "--on", "h100:1", "--tpot", "30ms"), 0),
        (("llama3-8b", "--on", "h100:1", "--tpot", "1ms"), 4),  # fits, and is too slow
        (("llama3-70b", "--on", "h100:1"), 3),  # does not fit
        (("llama3-8b", "--on", "h100:1", "--tpot", "p12:1ms"), 2),
    ],
)
def test_what_fits_and_misses_its_target_is_told_from_what_does_not_fit(words: tuple[str, ...], code: int) -> None:
    assert main(["serve", *words, "--json"]) == code
