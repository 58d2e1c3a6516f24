"""A plan file of a use case: `dscale simulate FILE` runs what the answer's own next command runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.recommended import simulate_question
from dragonscale.commands.simulate.simulate_question import read_question


@pytest.mark.parametrize(
    "flags",
    [
        {"use_case": "agent", "rate": "20/s"},
        {"use_case": "chat", "users": 3000, "ttft": "p95:400ms", "output": "300"},
    ],
)
def test_a_saved_use_case_runs_as_the_next_command(flags: dict[str, Any], tmp_path: Path):
    path = tmp_path / "s.toml"
    report = ds.serve("llama3.1-8b", on="h100:1", **flags)
    report.save(str(path))
    assert f'use_case = "{flags["use_case"]}"' in path.read_text()
    next_question = simulate_question(report.asked, report.configs[0])
    if next_question.replicas is None:  # a router among one replica is not asked for
        next_question = replace(next_question, router=SimulateQuestion.router)
    followed = read_question(next_question)
    saved = read_question(SimulateQuestion(str(path)))
    assert saved.job.source == followed.job.source
    assert saved.job.fleet == followed.job.fleet
    assert saved.job.options == followed.job.options
    assert [one.targets for one in saved.job.traffic.classes] == [one.targets for one in followed.job.traffic.classes]
    other = read_question(SimulateQuestion(str(path), clients=8))
    assert not other.job.traffic.classes
