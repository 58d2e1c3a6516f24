"""The stack and the engine `dragonscale` beside whole steps of our own program on an H200, and how `dscale calibrate --stack` settles them."""

import re
import statistics
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.stack_cases import TrainCase, cases
from dragonscale.evidence.calibrate.stack_expected import expected_case
from dragonscale.evidence.calibrate.stack_file import stack_text
from dragonscale.evidence.calibrate.stack_fit import Settled, kind_of_case, measured_on, ratios, settle
from dragonscale.evidence.calibrate.stack_rows import MeasuredCase, read_rows
from dragonscale.hardware import parse_slice
from dragonscale.models import load_model
from dragonscale.serving.engine import load_engine
from dragonscale.training.bands import job_band
from dragonscale.training.evaluation import make_job
from dragonscale.training.stack import change, load_stack, on_chip

STEPS = Path(__file__).parents[2] / "docs" / "data" / "h200_stack_steps.jsonl"
H200 = parse_slice("h200:1")
STACK, ENGINE = load_stack("dragonscale"), load_engine("dragonscale")


def test_models_left_out_are_within_the_errors_that_are_stated() -> None:
    rows = {case: row for case, row in read_rows(STEPS).items() if case.use != "fit"}
    found = ratios(rows, H200, STACK, ENGINE)
    limits = {"training": (0.08, 0.15), "prefill": (0.06, 0.15), "decode": (0.06, 0.15)}
    assert len({case.model for case in found if isinstance(case, TrainCase)}) >= 6
    for what, (median, worst) in limits.items():
        errors = [abs(1 / ratio - 1) for case, ratio in found.items() if kind_of_case(case) == what]
        assert statistics.median(errors) < median
        assert max(errors) < worst
    stated = {one.what: one for one in (*STACK.measured, *ENGINE.measured)}
    told = measured_on(Settled(STACK, ENGINE, found), "h200", "", "")
    for what, one in told.items():
        assert (stated[what].median, stated[what].worst) == pytest.approx((one.median, one.worst), abs=0.002)


def test_constants_are_found_again() -> None:
    chosen = [case for case in cases() if case.use == "fit" and isinstance(case, TrainCase)][:1]
    true = change(STACK, "kernels", attention=1.5)
    rows = {case: expected_case(case, H200, true, ENGINE) for case in chosen}
    told = {case: MeasuredCase(row.seconds, row.matmul, row.attention) for case, row in rows.items()}
    found = settle(told, H200, STACK, ENGINE)
    assert found.stack.kernels.attention == pytest.approx(1.5, rel=0.1)
    assert found.stack.kernels.matmul == pytest.approx(STACK.kernels.matmul, rel=0.05)


def test_attention_that_no_flash_kernel_takes_is_many_times_slower() -> None:
    capped = next(case for case in cases() if case.model == "gemma2-2b" and isinstance(case, TrainCase))
    flash = change(STACK, "kernels", plain_flash=False)
    blocks, kernel = (expected_case(capped, H200, stack, ENGINE).attention for stack in (STACK, flash))
    assert blocks > 5 * kernel


def test_what_was_measured_on_gpus_is_not_taken_for_tpus() -> None:
    there = on_chip(STACK, "tpu")
    assert (there.kernels.head, there.host.layer_s, there.state.weight_copies) == (1.0, 0.0, 0.0)
    job = make_job(load_model("llama3.2-1b"), parse_slice("v5p:2x2x1"), 16, 2048, "dragonscale")
    assert "h200" not in job_band(job).text


def test_a_stack_of_ones_own(tmp_path: Path) -> None:
    rows = {case: 1.02 for case in cases() if case.model == "gemma2-2b"}
    settled = Settled(change(STACK, "kernels", attention=1.25), ENGINE, rows)
    file = tmp_path / "mine.toml"
    file.write_text(stack_text(settled, measured_on(settled, "h200", "here", "2026-11-16"), "here", "2026-11-16", None))
    assert load_stack(str(file)).kernels.attention == 1.25
    assert load_stack(str(file)).state == STACK.state
    assert load_stack(str(file)).measured[0].median == pytest.approx(0.02, abs=1e-3)
    assert load_engine(f"{file},kernels.matmul=2").kernels.matmul == 2
    for text, said in (
        ("[engine]\n", "no table [stack]"),
        ("[stack]\nbase = 'x'\n", "no software stack 'x'"),
        ("[stack]\nkernels = 3\n", "cannot be read"),
    ):
        file = tmp_path / f"{len(text)}.toml"
        file.write_text(text)
        with pytest.raises(InputError, match=re.escape(said)):
            load_stack(str(file))
