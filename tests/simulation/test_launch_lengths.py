"""The longest request of a launch line: the engine refuses longer ones, and an export has a limit that holds them."""

import re
from pathlib import Path
from typing import Any

import dragonscale as ds
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.simulation.loop import BEYOND_SERVED_LENGTH

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def test_the_limit_of_a_launch_line_refuses_longer_requests():
    flags: dict[str, Any] = {"on": "h100:1", "use_case": "chat", "rate": "2/s", "requests": "300"}
    limited = ds.simulate("llama3.1-8b", plan=f"vllm serve {LLAMA} --max-model-len 1280", **flags)
    refused = limited.requests.refused[BEYOND_SERVED_LENGTH]
    assert 0 < refused < 300
    assert limited.requests.finished == 300 - refused
    told = " ".join(str(limited).split())
    assert "a higher limit in the launch line" in told
    # what was served meets its targets, so the verdict names the refusals
    assert told.startswith(f"Does not hold: {refused} of 300 requests of chat refused; the others meet TTFT p95 ")


def test_every_engine_s_word_for_the_limit_is_read():
    for launch, limit in (
        (f"python -m sglang.launch_server --model-path {LLAMA} --context-length 4096", 4096),
        (f"vllm serve {LLAMA} --max-model-len 8k", 8000),
        (f"vllm serve {LLAMA}", None),
    ):
        asked = read_question(SimulateQuestion("llama3.1-8b", on="h100:1", rate="2/s", plan=launch))
        assert asked.job.fleet.served_length == limit
        noted = [note for note in asked.notes if "the engine refuses longer ones" in note]
        assert len(noted) == (1 if limit else 0)


def test_an_export_takes_nearly_every_request_of_its_use_case(tmp_path: Path):
    plan = tmp_path / "s.toml"
    ds.serve("llama3.1-8b", on="h100:1", use_case="chat", rate="2/s").save(str(plan))
    written = "".join(ds.export(str(plan), to="vllm").files.values())
    limit = re.search(r"--max-model-len (\d+)", written)
    assert limit
    flags: dict[str, Any] = {"on": "h100:1", "use_case": "chat", "rate": "2/s", "requests": "1000"}
    ran = ds.simulate("llama3.1-8b", plan=f"vllm serve {LLAMA} --max-model-len {limit[1]}", **flags)
    assert ran.requests.refused.get(BEYOND_SERVED_LENGTH, 0) <= 5


def test_an_export_takes_outputs_that_vary_by_half():
    made = ds.export("tp1", to="vllm", model="llama3.1-8b", on="h100:1", prompt="512", output="2048")
    limit = re.search(r"--max-model-len (\d+)", "".join(made.files.values()))
    assert limit
    assert int(limit[1]) >= 512 + 2048 * 3 // 2
