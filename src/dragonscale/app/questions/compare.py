"""What `dscale compare` and `ds.compare` can be asked."""

from dragonscale.app.questions import shared
from dragonscale.app.questions.flag import PLAN, Items, Question, Text, Thing


class CompareQuestion(Question):
    """Plans, slices, stacks or engines, side by side. Several of each give every combination."""

    things: Items = Items((), "PLAN …", place=True, offers="files")
    """Plans ("tp8 pp4 dp16"), files of --save, or the word best; with PLAN=8.2s the step that was measured of it."""
    model: Thing = shared.MODEL.but(default="", place=False)
    on: Thing = shared.ON.but(default="")
    """A slice, or several to compare (h100:512,v5p:8x8x8); to serve, chips too (h100,v6e)."""
    batch: Text = shared.BATCH.but(default="")
    """Training: tokens of a step (4M), or sequences (512seq). Serving: sequences decoded at once."""
    seq: Text = shared.SEQ.but(default="")
    """Training: tokens of a sequence (8192, 32k)."""
    tokens: Text = Text("", "TOKENS")
    """Training: tokens of the whole run (15T), for days and dollars."""
    prompt: Text = Text("", "TOKENS")
    """Serving: tokens of a prompt (2048 without it)."""
    output: Text = Text("", "TOKENS")
    """Serving: output tokens of a request (512 without it)."""
    ttft: Text = Text("", "TIME")
    """Serving: the TTFT to hold (500ms)."""
    tpot: Text = Text("", "TIME")
    """Serving: the TPOT to hold (30ms)."""
    measured: Text = Text("", "TIME", PLAN)
    """Training: the step that was measured of the first plan (8.2s)."""
    price: Text = shared.PRICE
    profile: Text = shared.PROFILE
    stack: Text = shared.STACK.but(default="")
    """Training software, or several to compare: megatron,torchtitan …"""
    engine: Text = shared.ENGINE.but()
    """Serving software, or several to compare: vllm,sglang …"""
    dtype: Text = shared.DTYPE.but(default="")
    """Format of matmuls: bf16 without it, fp8 …"""
