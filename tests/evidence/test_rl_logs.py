"""Logs of frameworks of reinforcement learning: which phase each name is of, and the run beside its plan."""

from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.evidence.logs.rl_log import read_rl_log
from dragonscale.evidence.logs.text import LogText
from tests.exports.test_rl_exports import PUBLISHED

VERL = "".join(
    f"step:{step} - response_length/mean:300.0 - timing_s/gen:{10 * slow} - timing_s/old_log_prob:{4 * slow} - "
    f"timing_s/ref:3.0 - timing_s/update_actor:20.5 - timing_s/step:{40 * slow} - timing_per_token_ms/gen:0.02\n"
    for step, slow in ((1, 9.0), (2, 1.0), (3, 1.0), (4, 1.5))
)
LOGS = {
    "verl": (VERL, {"step": 40.0, "generation": 10.0, "logprob": 4.0, "reference": 3.0, "update": 20.5}, 300.0),
    "NeMo-RL": (
        "  • Mean Generation Length: 812.5\n  • Total step time: 61.20s\n  • generation: 30.10s (49.2%)\n"
        "  • policy_and_reference_logprobs: 9.00s (14.7%)\n  • policy_training: 15.00s (24.5%)\n",
        {"step": 61.2, "generation": 30.1, "logprob+reference": 9.0, "update": 15.0},
        812.5,
    ),
    "OpenRLHF": (
        '{"timing/generation": 12.0, "timing/make_experience": 5.0, "timing/ppo_train": 8, "timing/step_total": 26.0}\n',
        {"step": 26.0, "generation": 12.0, "reward+logprob+reference": 5.0, "update": 8.0},
        0.0,
    ),
    "slime": (
        "perf 3: {'perf/rollout_time': 50.5, 'perf/actor_train_time': np.float64(21.0), 'perf/log_probs_time': 7.0}\n",
        {"generation": 50.5, "update": 21.0, "logprob": 7.0},
        0.0,
    ),
    "TRL": ("{'loss': 0.01, 'step_time': 14.5, 'completions/mean_length': 210.0}\n", {"step": 14.5}, 210.0),
}


@pytest.mark.parametrize("software", list(LOGS))
def test_every_framework_is_read(software):
    text, seconds, length = LOGS[software]
    found = read_rl_log(LogText(text, Path("run.log")))
    assert (found.software, found.seconds, found.length) == (software, seconds, length)


def test_a_log_stands_beside_its_plan(tmp_path):
    (tmp_path / "verl.log").write_text(VERL)
    (tmp_path / "run.sh").write_text(PUBLISHED.replace("batch_size_per_gpu=32", "batch_size_per_gpu=8"))
    found = ds.validate("rl", str(tmp_path / "verl.log"), plan=str(tmp_path / "run.sh"), on="h100")
    rows = {row.name: row for row in found.measures}
    assert list(rows) == ["step", "generation", "logprob", "reference", "update"]
    assert rows["step"].measured == 40.0
    assert rows["generation"].expected < rows["step"].expected
    assert "answers of 300 tokens" in found.workload
    assert found.counted == 3


def test_a_text_without_times_is_refused(tmp_path):
    (tmp_path / "other.log").write_text("nothing here\n")
    with pytest.raises(InputError, match="none of the times"):
        ds.validate("rl", str(tmp_path / "other.log"), plan=PUBLISHED, on="h100")
