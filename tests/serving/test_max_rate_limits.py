"""What stops a rate larger than the largest that holds, and the star of its table."""

from typing import Any

from msgspec.structs import replace as changed

from dragonscale.blocks.sheet import Sheet
from dragonscale.blocks.terminal import text_of
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.serve_question import read_question as read_serve_question
from dragonscale.commands.serve.variant_blocks import max_rates_table
from dragonscale.commands.serve.variant_records import MaxRate
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.simulation.fleet_sizing.capacity import Trials
from dragonscale.simulation.fleet_sizing.sustained_rate import limit_of


def test_a_latency_far_below_its_target_does_not_limit_the_rate() -> None:
    """Four places: just below what they serve the TTFT is a fraction of its target, and above it the queue grows."""
    flags: dict[str, Any] = {"on": "h100:1", "prompt": "512", "output": "64", "engine": "generic"}
    flags |= {"rate": "8/s", "requests": "1000"}
    loose = Trials(read_question(SimulateQuestion("llama3-8b", max_seqs=4, ttft="3s", **flags)).job, 4, None)
    low, high = loose.run(5.0), loose.run(40.0)
    assert low.good
    assert "ttft_s" in high.missed
    assert limit_of(loose.job, low, high) == "queue"
    reached = loose.job.reached(low.result, "ttft_s")
    tight = Trials(
        read_question(SimulateQuestion("llama3-8b", max_seqs=4, ttft=f"{1.05 * reached}s", **flags)).job, 4, None
    )
    assert limit_of(tight.job, tight.run(5.0), tight.run(40.0)) == "ttft_s"


def test_the_star_is_explained_where_a_row_has_one() -> None:
    question = ServeQuestion("llama3-8b", on="h100:1", prompt="512", output="64", tpot="25ms", engine="generic")
    report = answer(read_serve_question(question), brief=True)
    row = MaxRate("h100:1", "tensor=1", 2.0, "queue", good_share=0.9, good_tokens_per_s_per_chip=100.0)
    for is_starred in (True, False):
        shown = changed(report, max_rates=[changed(row, on_frontier=is_starred)])
        text = text_of(Sheet((max_rates_table(shown),)))
        assert ("90.0%*" in text) is is_starred
        assert ("* No other" in text) is is_starred
