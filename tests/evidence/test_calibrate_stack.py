"""The stack and the engine `dragonscale` beside whole steps of our own program on an H200, and how `dscale calibrate
--stack` settles them."""

import dataclasses
import re
import statistics
from pathlib import Path

import numpy
import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.stack_fit import (
    FREE_STACK,
    Case,
    ExpectedCase,
    MeasuredCase,
    Settled,
    TrainCase,
    _solved,  # pyright: ignore[reportPrivateUsage]
    expected_case,
    kind_of_case,
    measured_on,
    ratios,
    read_rows,
    settle,
    stack_text,
    step_cases,
    unknown_rows,
)
from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.kernels import attention_seconds, kernel_profile_for, profile_file
from dragonscale.physics.numbers import first_number
from dragonscale.plan.settings import check_measured, check_numbers
from dragonscale.serving.engine.engine import engines, load_engine, on_kind
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import Stack, change, load_stack, on_chip, stacks
from dragonscale.training.plan.timers import expected_timer
from dragonscale.training.search.error_bands import job_band

STEPS = Path(__file__).parents[2] / "docs" / "data" / "h200_stack_steps.jsonl"
H200 = parse_slice("h200:1")
MEASURED = (
    '[[TABLE.measured]]\nchip = "h200"\nwhat = "training"\nsource = "s"\ndate = "d"\nrows = 9\nleft_out = 9\nworst = '
    "0.2\n"
)
STACK, ENGINE = load_stack("dragonscale"), load_engine("jax-program")


def test_models_left_out_are_within_the_errors_that_are_stated() -> None:
    rows = {case: row for case, row in read_rows(STEPS).items() if case.use == "left out"}
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
    chosen = [case for case in step_cases() if case.use == "fit" and isinstance(case, TrainCase)][:1]
    true = change(STACK, "kernels", attention=1.5)
    rows = {case: expected_case(case, H200, true, ENGINE) for case in chosen}
    told = {case: MeasuredCase(row.seconds, row.matmul, row.attention) for case, row in rows.items()}
    found = settle(told, H200, STACK, ENGINE)
    assert found.stack.kernels.attention == pytest.approx(1.5, rel=0.1)
    assert found.stack.kernels.matmul == pytest.approx(STACK.kernels.matmul, rel=0.05)


def test_attention_that_no_flash_kernel_takes_is_many_times_slower() -> None:
    capped = next(case for case in step_cases() if case.model == "gemma2-2b" and isinstance(case, TrainCase))
    flash = change(STACK, "kernels", plain_flash=False)
    blocks, kernel = (expected_case(capped, H200, stack, ENGINE).attention for stack in (STACK, flash))
    assert blocks > 5 * kernel


def test_what_was_measured_on_gpus_is_not_taken_for_tpus() -> None:
    there = on_chip(STACK, "tpu")
    assert (there.kernels.head, there.host.layer_s, there.state.weight_copies) == (1.0, 0.0, 0.0)
    job = make_job(load_model("llama3.2-1b"), parse_slice("v5p:2x2x1"), 16, 2048, "dragonscale")
    assert "h200" not in job_band(job, Plan()).text


def test_a_stack_of_ones_own(tmp_path: Path) -> None:
    rows = {case: 1.02 for case in step_cases() if case.model == "gemma2-2b"}
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


def test_attention_on_tpus_is_the_flash_kernel_of_the_chip() -> None:
    # What was measured of blocks of scores on an H200 must not reach TPUs: a step of 10 s had become one of 24 s.
    model, piece = load_model("llama3-8b"), parse_slice("v5p:2x2x1")
    found = judge_one(make_job(model, piece, 64, 4096, "dragonscale"), Plan(fsdp=4))
    attended = sum(first_number(line.total("exposed_s")) for line in found.ledger.lines if line.kind == "attention")
    kernel = attention_seconds(1, 4096, 4096, 32, 8, 128, "bf16", kernel_profile_for("v5p"))
    backward = kernel_profile_for("v5p").attention.of("bf16").backward
    passes = attended / (kernel * 16 * 32)
    assert passes == pytest.approx(1 + backward, rel=0.05) or passes == pytest.approx(2 + backward, rel=0.05)
    assert first_number(found.seconds) == pytest.approx(9.98, rel=0.03)


def test_attention_of_the_engine_on_tpus_is_the_flash_kernel_of_the_chip() -> None:
    piece = parse_slice("v6e:1x1")
    for name in ("llama3.2-1b", "gemma2-2b"):
        for asked in (decode(32, 2047), prefill(4096)):
            ours, theirs = (
                sum(
                    float(numpy.ravel(line.total("exposed_s"))[0])
                    for line in iteration_cost(
                        Deployment(load_model(name), piece, ServingPlan(), load_engine(engine)), asked
                    ).lines
                    if line.kind == "attention"
                )
                for engine in ("jax-program", "jax")
            )
            assert ours == pytest.approx(theirs, rel=0.05)


@pytest.mark.parametrize(
    ("table", "text", "said"),
    [
        ("stack", "kernels = { matmul = nan }", "kernels.matmul is nan"),
        ("stack", "kernels = { matmul = -1 }", "kernels.matmul is -1"),
        ("stack", "kernels = { elementwise_passes = inf }", "kernels.elementwise_passes is inf"),
        ("stack", "kernels = { loss_bytes = 1e300 }", "kernels.loss_bytes is 1e+300"),
        ("stack", "overlap = { tensor = 5 }", "overlap.tensor is 5"),
        ("stack", 'tpu = ["nonsense"]', "'nonsense'"),
        ("stack", 'tpu = ["kernels.nothing=1"]', "nothing"),
        ("stack", 'tpu = ["name.x=1"]', "name"),
        ("stack", 'tpu = ["kernels.flash=nan"]', "flash"),
        ("stack", 'tpu = ["kernels.matmul=-2"]', "kernels.matmul is -2"),
        ("engine", "kernels = { matmul = nan }", "kernels.matmul is nan"),
        ("engine", "memory = { share = 1.5 }", "memory.share is 1.5"),
        ("engine", "memory = { page = 0 }", "memory.page is 0"),
        ("engine", 'tpu = ["nonsense"]', "'nonsense'"),
        ("engine", 'tpu = ["host.x=1"]', "x"),
        *(
            (table, MEASURED + one, "cannot be")
            for table in ("stack", "engine")
            for one in (
                "median = nan\nlow = -0.1\nhigh = 0.1",
                "median = 0.1\nlow = nan\nhigh = 0.1",
                "median = 0.1\nlow = -2\nhigh = 0.1",
            )
        ),
    ],
)
def test_a_number_that_no_program_has_is_told(tmp_path: Path, table: str, text: str, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"[{table}]\n{text.replace('TABLE', table)}\n")
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        (load_stack if table == "stack" else load_engine)(str(file))
    assert "\n" not in str(caught.value)


def test_switches_for_tpus_may_be_words_and_numbers(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[stack]\ntpu = ["kernels.flash=false", "host.step_s=1"]\n[engine]\ntpu = ["kernels.joined=true"]\n'
    )
    there = on_chip(load_stack(str(file)), "tpu")
    assert (there.kernels.flash, there.host.step_s) == (False, 1.0)
    assert on_kind(load_engine(str(file)), "tpu").kernels.joined
    assert there.tpu == on_kind(load_engine(str(file)), "tpu").tpu == ()  # what is settled there is not set back


def test_everything_that_ships_passes_the_same_checks() -> None:
    for one in stacks().values():
        check_numbers(one, one.name)
        check_numbers(on_chip(one, "tpu"), one.name)
        check_measured(one.measured, one.name)
    for one in engines().values():
        check_numbers(one, one.name)
        check_numbers(on_kind(one, "tpu"), one.name)
        check_measured(one.measured, one.name)


def test_files_that_change_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for value in (1.5, 2.25):
        file.write_text(f"[stack]\nkernels = {{ matmul = {value} }}\n[engine]\nkernels = {{ matmul = {value} }}\n")
        assert load_stack(str(file)).kernels.matmul == value
        assert load_engine(str(file)).kernels.matmul == value


def test_a_profile_that_changes_is_timed_again(tmp_path: Path) -> None:
    text = (Path(profile_file.__file__).parent / "profiles" / "h200.toml").read_text()
    rate = re.search(r"^\[stream\].*?^bandwidth = ([\d.]+)", text, re.M | re.S)
    assert rate is not None
    file = tmp_path / "own.toml"
    chip = dataclasses.replace(load_chip("h200"), kernels=str(file))
    for value in ("0.5", "0.25"):
        file.write_text(text[: rate.start(1)] + value + text[rate.end(1) :])
        assert expected_timer(chip, "bf16", STACK).profile.stream.bandwidth == float(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"key": "k", "s": Infinity}',
        '{"key": "k", "s": 1e300}',
        '{"key": "k", "s": NaN}',
        '{"key": "k", "s": "1"}',
        '{"key": "k", "s": 1, "parts": {"matmul": "x"}}',
        '{"key": "k", "s": 1, "parts": {"matmul": -1}}',
        '{"key": "device", "software": 5}',
        "[]",
        "5",
        "{",
    ],
)
def test_rows_that_are_no_steps_are_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_text('{"key": "other", "s": 1}\n' + text + "\n")
    with pytest.raises(InputError, match=re.escape("Line 2 of")):
        read_rows(file)


def test_rows_that_no_constants_explain_do_not_break_the_fit() -> None:
    case = next(case for case in step_cases() if isinstance(case, TrainCase))

    def expected(stack: Stack, _: Case) -> ExpectedCase:
        return ExpectedCase(
            stack.kernels.matmul, {"matmul": stack.kernels.matmul, "attention": stack.kernels.attention}
        )

    for seconds in (1e-7, 1e5):
        found = _solved(FREE_STACK, STACK, {case: MeasuredCase(seconds, 1e-30, 1e5)}, expected)
        assert all(0 < value < 1e6 for value in found.values())


def test_a_row_of_no_case_is_named() -> None:
    assert unknown_rows(STEPS) == ["train qwen3-30b-a3b?num_hidden_layers=1 1x1x4096 block 1"]
