"""No recommended plan breaks a rule, over a hundred jobs; and every rule can be broken."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dragonscale.commands.train.train_records import StackRow
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import load_stack
from dragonscale.training.search.space import parse_space, rows_of
from tests.training import rules
from tests.training.rules import Answer, Rule, answer_to, broken

LINES = (Path(__file__).parent / "recommended_jobs.txt").read_text().splitlines()
JOBS = [line.removeprefix("* ") for line in LINES if line and not line.startswith("#")]
SAMPLE = [line.removeprefix("* ") for line in LINES if line.startswith("* ")]


def check(line: str) -> None:
    assert not broken(answer_to(line)), line


@pytest.mark.parametrize("line", SAMPLE)
def test_recommended_plans_keep_the_rules(line: str) -> None:
    check(line)


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in JOBS if line not in SAMPLE])
def test_recommended_plans_of_a_hundred_jobs_keep_the_rules(line: str) -> None:
    check(line)


def test_there_are_a_hundred_jobs() -> None:
    assert len(set(JOBS)) == len(JOBS) >= 100
    chips = {line.split("--on ")[1].split(":")[0] for line in JOBS}
    assert {"h100", "h200", "a100", "a100-40gb", "b200", "gb200", "gb300", "mi300x", "mi355x", "l40s"} < chips
    assert {"rtx4090", "v100", "v4", "v5e", "v5p", "v6e", "tpu7x"} < chips


@pytest.fixture(scope="module")
def dense() -> Answer:
    return answer_to("llama3-70b --on h100:64 --batch 128seq --seq 8192")


@pytest.fixture(scope="module")
def torus() -> Answer:
    return answer_to("llama3-8b --on v5p:4x4x4 --batch 128seq --seq 8192")


@pytest.fixture(scope="module")
def pods() -> Answer:
    return answer_to("llama3.2-1b --on v5e:4x4*2 --batch 256seq --seq 2048")


BAD: list[tuple[Rule, str, str]] = [
    (rules.runs, "dense", "fsdp64 z3 none"),  # does not fit
    (rules.runs, "dense", "pp4 fsdp4 tp4 z3 block"),  # Megatron has no ZeRO-3 under a pipeline
    (rules.runs, "dense", "pp3 fsdp4 tp4 z1"),  # not 64 chips
    (rules.is_not_advised_against, "dense", "fsdp16 tp4 z3 block"),
    (rules.leaves_room, "dense", "pp4 fsdp4 tp4 v20 z1 none"),
    (rules.is_of_a_published_kind, "dense", "fsdp64 z3 block"),  # Megatron's FSDP on Hopper
    (rules.recomputes_what_frees, "dense", "pp2 fsdp4 tp8 z1 core_attn"),
    (rules.recomputes_what_frees, "dense", "pp2 fsdp4 tp8 z1 layernorm+mlp"),
    (rules.keeps_tensor_in_a_node, "dense", "tp16 fsdp4 z1 block"),
    (rules.splits_short_sequences_for_a_gain, "torus", "fsdp32 cp2 z3 none"),
    (rules.has_whole_microbatches, "dense", "pp2 fsdp2 dp1 tp8 cp2 z1 mb6 block"),
    (rules.has_a_usual_schedule, "dense", "pp4 fsdp4 tp4 z1 zb-h1 block"),
    (rules.keeps_pods_apart, "pods", "pp2 fsdp16 gpipe z3 none"),
]


@pytest.mark.parametrize(("rule", "name", "plan"), BAD)
def test_a_rule_finds_a_bad_plan(rule: Rule, name: str, plan: str, request: pytest.FixtureRequest) -> None:
    good: Answer = request.getfixturevalue(name)
    bad = replace(good, plan=parse_plan(plan))
    if rule is rules.has_whole_microbatches:
        bad = replace(bad, job=replace(good.job, batch=24))
    assert rule(bad)
    assert not rule(good)


def test_a_simpler_plan_that_is_as_fast_is_found(dense: Answer) -> None:
    best = dense.report.plans[0]
    plan = replace(dense.plan, virtual=4, layout="ends")
    report = msgspec.structs.replace(dense.report, plans=[best, msgspec.structs.replace(best, hbm_bytes=1e9)])
    odd = replace(dense, plan=plan, report=report)
    own = float(judge_one(dense.job, plan).seconds)
    report.plans[1].step_s = own
    assert "simpler" in rules.is_simplest(odd)
    report.plans[1].step_s = own * 1.02
    assert not rules.is_simplest(odd)


def test_stacks_are_usual_and_none_is_faster(dense: Answer) -> None:
    assert not rules.has_a_usual_stack(dense)
    odd = replace(dense, job=replace(dense.job, stack=load_stack("nanotron")))
    assert "nanotron is none of" in rules.has_a_usual_stack(odd)
    step = dense.report.plans[0].step_s
    for factor, tight, found in ((0.9, False, True), (0.99, False, False), (0.9, True, False)):
        rows = [*dense.report.stacks, StackRow("torchtitan", "fsdp64", step * factor, 0.5, tight)]
        other = replace(dense, report=msgspec.structs.replace(dense.report, stacks=rows))
        assert bool(rules.has_the_fastest_stack(other)) == found


@pytest.mark.parametrize(
    ("batch", "pins", "offered"),
    [(96, "", {1, 2, 4, 12}), (120, "", {1, 3, 5, 15}), (128, "", {1, 2, 4, 8, 16}), (96, ",microbatch=6", {6})],
)
def test_microbatches_are_powers_of_two_where_the_batch_allows(batch: int, pins: str, offered: set[int]) -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), batch, 4096, "megatron-core")
    assert {*rows_of(job, parse_space(f"fsdp=8{pins}"))["microbatch"].tolist()} == offered


def test_the_next_command_is_of_the_plan(dense: Answer) -> None:
    assert not rules.prints_itself(dense)
    assert "fsdp" in rules.prints_itself(replace(dense, plan=parse_plan("fsdp64 z1 block")))
