"""Advice of a few answers, and of every mistake that is known, followed (`tools/try_advice.py`); many more nightly."""

from dragonscale.commands.advised import FITS, Advice
from tools.try_advice import FOLLOWED, Mistake, answered, asked, draw_lines, draw_mistakes, try_all, try_mistake

LINES = (
    "dscale train llama3-8b --on h100:8 --batch 64seq --seq 8192",
    "dscale train llama3-8b --on h100:1 --batch 8seq --seq 8192",
    "dscale train qwen2.5-7b --method lora --on a10g:4 --batch 8seq --seq 16384 --stack hf",
    "dscale train llama3-8b --on h100:8 --batch 16seq --seq 4096 --plan 'pp2 fsdp4 z1'",
    "dscale serve llama3-70b --on h100:8 --ttft 300ms --tpot 15ms",
    "dscale serve llama3-70b --on a100:1",
    "dscale estimate --params 8b --on h100:8",
    "dscale simulate llama3-8b --on h100:1 --rate 2/s --requests 200 --ttft 300ms --tpot 10ms",
    "dscale rl llama3.2-1b --on h100:2",
    "dscale compare llama3-8b fsdp8 tp8 --on h100:8 --batch 16seq --seq 4096",
    "dscale estimate llama3-8b --on h100:8",
    "dscale models llama3-8b --seq 8192",
)


def test_what_a_few_answers_advise_does_what_they_say() -> None:
    trials = list(try_all(LINES))
    assert [trial for trial in trials if trial.fault] == []
    assert len(trials) >= 15


def test_what_every_error_says_to_type_works() -> None:
    assert [trial for trial in try_all(draw_mistakes(1000, 1)) if trial.fault] == []


def test_answers_that_are_drawn_advise_what_works() -> None:
    tasks = [*draw_lines(100, 2), *draw_mistakes(60, 2)]
    assert [trial for trial in try_all(tasks) if trial.fault] == []


def test_a_suggestion_that_does_not_work_is_found() -> None:
    line = "dscale train lama3-8b --on h100:8 --batch 64seq --seq 8192 --plan nonsense"
    trials = try_mistake(Mistake(line, "lama3-8b"))
    assert any("still refused" in trial.fault for trial in trials)


def test_a_gain_that_is_not_had_is_found() -> None:
    command, question = asked(
        "dscale train llama3-8b --on h100:8 --batch 16seq --seq 4096 --plan 'fsdp8 block' --alone"
    )
    report = answered(command, question)
    assert [fault for _, fault in FOLLOWED[type(report)](command, report, question) if fault] == []
    report.plans[0].helps[0].gain *= 2
    assert any("said" in fault for _, fault in FOLLOWED[type(report)](command, report, question))


def test_a_remedy_that_does_not_fit_is_found() -> None:
    command, question = asked("dscale serve llama3-70b --on h100:1")
    report = answered(command, question)
    assert [one.flags for one in report.changes] == [{"on": "h100:2", "plan": ""}, {"quantize": "fp8"}]
    report.changes = [Advice("It fits on one card.", {"on": "rtx4090:1"}, FITS)]
    assert [fault for _, fault in FOLLOWED[type(report)](command, report, question)] == ["does not fit"]


def test_a_rung_that_brings_less_is_found() -> None:
    command, question = asked("dscale serve llama3-8b --on h100:1")
    report = answered(command, question)
    assert report.rungs
    assert [fault for _, fault in FOLLOWED[type(report)](command, report, question) if fault] == []
    report.rungs[0].gain += 0.5
    assert any("said" in fault for _, fault in FOLLOWED[type(report)](command, report, question))
