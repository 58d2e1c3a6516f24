"""The profiles that ship, recorded on an H200: what is known of the runs is what is read off them."""

import re
from pathlib import Path

import msgspec
import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.evidence.profiles.beside import expected_step
from dragonscale.evidence.profiles.profiled import completed
from dragonscale.evidence.profiles.savings import expected_attention, find_savings
from dragonscale.evidence.verify.records import Request
from dragonscale.faces.cli import main
from dragonscale.physics.units import render

FOLDER = Path(__file__).parents[2] / "examples" / "profiles"
TRAIN, DECODE, MODEL = (
    str(FOLDER / name) for name in ("h200_train.xplane.pb.gz", "h200_decode.xplane.pb.gz", "llama_4_layers.json")
)
STEP_S, DECODE_S = 34.68e-3, 0.806e-3
"""Without the profiler, by the clock of the host."""


@pytest.fixture(scope="module")
def train():
    return ds.profile(TRAIN, plan="microbatch=4", model=MODEL, on="h200", batch="4seq", seq=2048)


def test_a_training_step_of_ours_beside_its_plan(train):
    assert train.step_s == pytest.approx(STEP_S, rel=0.02)
    assert train.steps.kept == 3
    assert sum(part.seconds for part in train.parts) == pytest.approx(train.step_s, rel=1e-6)
    assert train.attributed_kind > 0.97
    assert train.attributed_section > 0.9
    for side in ("measured_flops", "planned_flops"):
        matmuls = sum(getattr(line, side) or 0 for line in train.beside if line.kind == "matmul")
        # forward and backward of every weight: 6 FLOPs for each and each token
        weights = 4 * (2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192) + 2048 * 32768
        assert matmuls == pytest.approx(6 * weights * 4 * 2048, rel=0.001)
    assert sum(line.expected_s for line in train.beside) == pytest.approx(train.planned_step_s)
    assert sum(line.measured_s for line in train.beside) == pytest.approx(train.step_s, rel=0.001)
    assert train.hfu >= train.mfu > 0.4


def test_attention_is_held_against_kernels_of_its_shapes(train):
    """cuDNN's flash kernels run as the kernel profile says: nothing is to be saved there."""
    found = train.analysis
    expected = expected_attention(found)
    ran = [one for one in expected if found.totals.works[one]]
    assert {found.roles[one].phase for one in ran} == {"forward", "backward"}
    for one in ran:
        assert found.totals.seconds[one] / found.totals.works[one] == pytest.approx(expected[one], rel=0.15)
    savings = find_savings(found.reading, found, (), expected)
    assert not any("ttention backward runs" in one.what for one in savings)


def test_a_page_tells_the_rate_of_what_bounds(train, tmp_path):
    train.save_page(str(tmp_path / "a.html"))
    text = (tmp_path / "a.html").read_text()
    assert "<th>achieved" in text.replace(' class="n"', "")
    assert "TB/s</td>" in text
    for line in train.beside:  # each beside what the plan expects
        shown = [re.escape(render(seconds, "s")) for seconds in (line.measured_s, line.expected_s, line.difference_s)]
        assert re.search("</td><td[^>]*>".join(shown), text)


def test_sizes_are_read_off_the_shapes():
    found = ds.profile(DECODE)
    known = {
        "d_model": 2048,
        "d_ff": 8192,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 64,
        "vocab": 32768,
        "layers": 4,
        "tokens": 16,
    }
    assert {name: found.sizes.get(name) for name in known} == known
    assert found.steps.count == 16
    assert found.step_s == pytest.approx(DECODE_S, rel=0.25)  # the profiler slows launches down
    assert found.savings[0].what.startswith("idle, host stall")


def test_a_profile_of_another_chip_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(InputError, match=r"recorded on 'NVIDIA H200' \(h200\).*v5p"):
        ds.profile(DECODE, on="v5p")
    assert main(["profile", DECODE, "--seq", "5"]) == 2
    assert "--seq says what --plan is of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request("train", "llama3-8b", "h200:1", "microbatch=4", 4, 2048), "d_model 2,048, the plan's of 4,096"),
        (Request("train", MODEL, "h200:1", "microbatch=2", 2, 2048), "2 times the plan's FLOPs"),
        (Request("train", MODEL, "h200:1", "microbatch=8", 8, 1024), "sequences have 2,048 tokens, the plan's 1,024"),
        (Request("decode", MODEL, "h200:1", "tensor=1", 16, 2048), "it is of decode"),
        (Request("train", MODEL, "h200:8", "fsdp=8", 32, 2048), "8 devices, and the profile of 1"),
    ],
)
def test_a_plan_of_something_else_is_told_first_and_has_no_mfu(train, request_: Request, said: str):
    found = completed(train.analysis, expected_step(request_, "dragonscale", "dragonscale"), "").reading
    assert said in found.differs[0]
    assert found.mfu is None


def test_a_plan_of_the_same_run_differs_in_nothing(train):
    assert train.differs == ()
    assert train.sizes["d_model"] == 2048
    other = msgspec.structs.replace(train, differs=("The plan is not of what was recorded: it is not.",))
    assert str(other).splitlines()[3].startswith("The plan is not")


def test_causal_attention_counts_by_half_wherever_it_is_told(train):
    told = [group for group in train.groups if group.kind in ("matmul", "attention")]
    assert train.computed_flops == pytest.approx(sum(group.flops for group in told))
    assert train.hfu == pytest.approx(train.computed_flops / train.step_s / 989e12, rel=0.01)
    full = sum(line.measured_flops or 0 for line in train.beside if line.kind == "attention")
    assert train.matmul_flops - train.computed_flops == pytest.approx(full / 2)


def test_a_group_is_held_against_all_of_its_time(train):
    for group in train.groups:
        if group.kind == "attention":
            assert group.fraction == pytest.approx(group.bound_s / group.seconds)
            assert group.flops_per_s == pytest.approx(group.flops / group.seconds)


def test_one_step_that_was_asked_for_is_told_as_one():
    found = ds.profile(DECODE, step=2)
    assert (found.steps.kept, found.steps.chosen) == (1, 2)
    assert "step 2 of 0 to 15" in str(found)
