"""The planned traffic in AIPerf's words."""

from dataclasses import replace
from pathlib import Path

import dragonscale as ds
from dragonscale.exports.shell import read_commands
from dragonscale.serving.engine.plan_file import SavedTargets, SavedTraffic, read_serving_plan, save_serving_plan


def _words(path: Path, **said: object) -> list[str]:
    saved = replace(read_serving_plan("tensor=8"), model="llama3-70b", slice="h100:8", batch=16, replicas=2)
    save_serving_plan(replace(saved, **said), str(path))  # pyright: ignore[reportArgumentType]
    made = ds.export(str(path), to="trtllm,aiperf")
    return next(one.words for one in read_commands(made.files["aiperf.sh"]) if one.words[0] == "aiperf")


def _after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_clients_of_all_replicas_send_one_request_after_the_other(tmp_path: Path) -> None:
    words = _words(tmp_path / "plan.toml", traffic=SavedTraffic(1000, 200))
    assert (_after(words, "--concurrency"), _after(words, "--request-count")) == ("32", "256")
    assert (_after(words, "--prompt-input-tokens-mean"), _after(words, "--prompt-output-tokens-mean")) == (
        "1000",
        "200",
    )
    assert "--request-rate" not in words


def test_a_rate_a_shared_prefix_and_targets(tmp_path: Path) -> None:
    traffic = SavedTraffic(1000, 200, cached=0.25, rate="4/s")
    words = _words(tmp_path / "plan.toml", traffic=traffic, targets=SavedTargets("500ms", "50ms"))
    assert (_after(words, "--request-rate"), _after(words, "--arrival-pattern")) == ("4", "poisson")
    assert (_after(words, "--prompt-prefix-length"), _after(words, "--prompt-input-tokens-mean")) == ("250", "750")
    assert _after(words, "--goodput") == "time_to_first_token:500 inter_token_latency:50"
    assert "--concurrency" not in words
