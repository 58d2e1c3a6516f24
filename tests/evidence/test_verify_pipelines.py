"""Pipelines that are verified: how often a rank takes its turns, what it sends, and whose memory is judged."""

import msgspec
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from dragonscale.commands.verify.verify_words import closing, exit_code, outcome, remarks
from dragonscale.errors import InputError
from dragonscale.evidence.verify.comparing import axis_lines
from dragonscale.evidence.verify.planned import plan_of
from dragonscale.evidence.verify.records import Request, StackDifference, VerifyLine
from dragonscale.evidence.verify.worker import turns_taken
from dragonscale.evidence.xla.call_graph import executions
from dragonscale.evidence.xla.compiled import Exchange
from dragonscale.evidence.xla.hlo_text import read_module
from dragonscale.training.plan.pipeline_order import timeline
from tests.cli.verify_reports import AGREEING, FULL

PIPED = Request("train", "llama3.2-1b", "h100:8", "pipe=2,fsdp=2,tensor=2,remat=selective,zero=1", 16, 1024)
TURNS = """
HloModule jit_f

%body (c: (s32[], f32[8])) -> (s32[], f32[8]) {
  %c = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[8]{0} get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %j = s32[] subtract(%i, %one)
  %y = f32[8]{0} negate(%x)
  ROOT %t = (s32[], f32[8]) tuple(%j, %y)
}

%condition (d: (s32[], f32[8])) -> pred[] {
  %d = (s32[], f32[8]) parameter(0)
  %m = s32[] get-tuple-element(%d), index=0
  %zero = s32[] constant(0)
  ROOT %more = pred[] compare(%m, %zero), direction=GT
}

ENTRY %main (k0: s32[], x0: f32[8]) -> (s32[], f32[8]) {
  %k0 = s32[] parameter(0)
  %x0 = f32[8]{0} parameter(1)
  %start = (s32[], f32[8]) tuple(%k0, %x0)
  ROOT %loop = (s32[], f32[8]) while(%start), condition=%condition, body=%body, metadata={op_name="jit(f)/stage_last/while"}
}
"""


def test_turns_are_counted_as_often_as_the_schedule_takes_them() -> None:
    module = read_module(TURNS)
    unknown, known, other = (executions(module, taken=taken) for taken in ((), (("stage_last", 3),), (("x", 3),)))
    assert (known["body"], known["condition"]) == (3, 4)
    assert unknown["body"] == other["body"] < 0


@pytest.mark.parametrize(("virtual", "schedule"), [(1, "1f1b"), (2, "interleaved"), (1, "gpipe"), (1, "zb-h1")])
def test_the_first_rank_runs_every_microbatch_both_ways(virtual: int, schedule: str) -> None:
    plan = f"{PIPED.plan},virtual={virtual},schedule={schedule}"
    turns = dict(turns_taken(msgspec.structs.replace(PIPED, plan=plan)))
    put_off = 8 if schedule == "zb-h1" else 0
    both = dict.fromkeys(("stage_forward", "stage_backward"), 8 * virtual)
    assert turns == both | {"stage_weights": put_off, "stage_last": 0}
    assert turns_taken(msgspec.structs.replace(PIPED, plan="fsdp=8")) == ()


def test_something_is_sent_both_ways_after_every_tick() -> None:
    (sends,) = (line for line in plan_of(PIPED).moves if line.axes == ("pipe",))
    assert sends.times == 2 * len(timeline("1f1b", 2, 1, 8)) == 36


@pytest.mark.parametrize(("layout", "longest"), [("8-8", 8), ("ends", 8), ("6-10", 10)])
def test_every_rank_runs_as_many_layers_as_the_longest_chunk(layout: str, longest: int) -> None:
    asked = plan_of(msgspec.structs.replace(PIPED, plan=f"{PIPED.plan},layout={layout}"))
    assert asked.flops == pytest.approx(plan_of(PIPED).flops * longest / 8)


def test_dealt_in_turn_every_chunk_counts_as_the_longest() -> None:
    plan = f"{PIPED.plan},virtual=9,schedule=interleaved,layout=ends"  # 18 chunks of a layer, less one at each end
    assert plan_of(msgspec.structs.replace(PIPED, plan=plan)).flops == pytest.approx(plan_of(PIPED).flops * 9 / 8)


def exchange(op_name: str, size: float) -> Exchange:
    told = ("all_reduce", ("pipe",), True, 2, size, size, 1, "sync", None, False, False, False, False, "", "x")
    return Exchange(*told, op_name, "")


def test_what_ranks_do_around_the_stages_is_explained_and_what_stages_do_is_not() -> None:
    moves = [line for line in plan_of(PIPED).moves if line.axes == ("pipe",)]
    sent = msgspec.structs.replace(
        exchange("while/body/ppermute", moves[0].wire_bytes), kind="permute", times=int(moves[0].times)
    )
    for op_name, verdict in (
        ("shard_map/head/psum", "explained"),
        ("while/body/stage_forward/while/body/psum", "differs"),
    ):
        (line,) = axis_lines(moves, [sent, exchange(op_name, 1e9)])
        assert line.line.verdict == verdict


def test_nothing_is_explained_by_stages_where_there_are_none() -> None:
    plain = msgspec.structs.replace(exchange("shard_map/head/psum", 1e9), axes=("fsdp",))
    (line,) = axis_lines([], [plain])
    assert line.line.verdict == "differs"


def test_sums_over_a_whole_torus_are_planned_along_one_row_after_the_other() -> None:
    """As many bytes as one scatter sends, 3/4 and then 1/4 of 3/4 of what there is; GPUs have one scatter."""
    tpus, gpus = (
        plan_of(Request("train", "llama3.2-1b", on, "fsdp=16,remat=block", 16, 2048)) for on in ("v6e:4x4", "h100:16")
    )
    scattered = [[each for each in one.moves if each.kind == "reduce_scatter"] for one in (tpus, gpus)]
    assert len(scattered[0]) == 2 * len(scattered[1])
    for (first, second), once in zip(
        zip(scattered[0][::2], scattered[0][1::2], strict=True), scattered[1], strict=True
    ):
        assert first.wire_bytes == 4 * second.wire_bytes
        assert first.wire_bytes + second.wire_bytes == pytest.approx(once.wire_bytes)


def test_what_our_own_program_does_not_run_is_said_before_anything_is_compiled() -> None:
    with pytest.raises(InputError, match=r"cannot run context_by=ring with a pipeline.*take context_by=gather"):
        plan_of(msgspec.structs.replace(PIPED, plan="pipe=2,fsdp=2,context=2,context_by=ring"))


def held(theirs: float) -> tuple[StackDifference, ...]:
    return (StackDifference("memory", "", "hbm_bytes", "step", "memory", "all", 91e9, theirs),)


def test_the_verdict_is_of_the_plans_own_stack() -> None:
    """Our own program needs 91 GB of 85: a plan of a stack that needs 79 fits, one that needs 90 does not."""
    peak = VerifyLine("peak memory", "bytes", 91e9, 90e9, 0.15, "agrees")
    ours = msgspec.structs.replace(AGREEING, peak=peak, limit_bytes=85e9, fits_planned=False, fits_compiled=False)
    assert (outcome(ours), exit_code(ours)) == ("does not fit", 3)
    theirs = msgspec.structs.replace(ours, stack="torchtitan", stack_differences=held(79e9))
    assert (outcome(theirs), exit_code(theirs)) == ("agrees", 0)
    assert closing(theirs).startswith("The numbers agree; our own program does not fit")
    assert "stack torchtitan would hold 79GB on the fullest chip and fits" in " ".join(remarks(theirs))
    fuller = msgspec.structs.replace(theirs, stack_differences=held(90e9))
    assert (outcome(fuller), exit_code(fuller)) == ("does not fit", 3)
    smaller = msgspec.structs.replace(fuller, fits_planned=True, fits_compiled=True, limit_bytes=89e9)
    assert "under its own stack" in closing(smaller)
    assert outcome(FULL) == "does not fit"
