"""Commands that look things up.

>>> import dragonscale as ds

>>> ds.model("llama3-8b")
<ModelReport: llama3-8b: 8.03B parameters, 7.5B used per token>
>>> shallow = ds.model("llama3-8b", seq="32k", assume="num_hidden_layers=16")
>>> shallow.parameters, shallow.rows()[0]["part"]
(4540469248, 'embed')

>>> ds.model("qwen3-14b", on="RTX 4090")
<RunnableReport: Runs on rtx4090:1: qwen3-14b (14.8B) in q8_0 by llama.cpp, 52.4 tokens/s, context 40,960.>

>>> ds.calc("1e12 FLOP / v5e.bf16").text
'5.08ms = 0.00507614 s'
>>> round(ds.calc("2*B*D*F/v5e.bf16 = (2*B*D+2*D*F+2*B*F)/v5e.hbm_bandwidth; D=8192; F=28672").value, 1)
249.7
>>> ds.calc("llama3-70b.kv_bytes_per_token * 8192", to="GiB").text
'2.5 GiB = 2,684,354,560 bytes'

>>> ds.chips("v5e")
<ChipReport: TPU v5e: 197TFLOP/s in bf16, 16GB of HBM>
>>> ds.chips("v5e:8x16").hosts, [axis.wraps for axis in ds.chips("v5e:8x16").axes]
(16, [False, True])
>>> len(ds.chips().chips) >= 20
True
"""

from dragonscale.commands.questions.facts import CalcQuestion, ChipsQuestion, ModelsQuestion
from dragonscale.faces.command import FACTS, command


@command(ModelsQuestion, FACTS, "models", charts=("parameters", "flops"))
def models():
    """What a model weighs: parameters, FLOPs, KV cache and activations, by part; all presets; or what runs on a chip.

    dscale models --on "RTX 4090"
    dscale models --here
    dscale models llama3-70b --seq 32k --kv-dtype fp8
    dscale models my/config.json --as llama --assume head_dim=128
    """
    from dragonscale.commands.models import ask

    return ask


@command(ModelsQuestion, FACTS, "models", charts=("parameters", "flops"))
def model():
    """What a model weighs: parameters, FLOPs, KV cache and activations, by part.

    Returns a `ModelReport`; `.to_frame()` has a row for each part. With `on` a `RunnableReport`: what runs there, a
    row for each model.
    """
    from dragonscale.commands.models import ask_model

    return ask_model


@command(CalcQuestion, FACTS, "calc")
def calc():
    """A calculator with units that knows chips, slices, models and closed forms by name, and solves equations.

    dscale calc "1e12 FLOP / v6e.bf16"
    dscale calc "llama3-70b.bytes / v5e.hbm_bandwidth" --to ms
    dscale calc "2*B*D*F/v5e.bf16 = 2*D*F/v5e.hbm_bandwidth"

    The value of an expression with units, in which chips, slices, models and closed forms stand by name.

    Returns a `CalcReport`: `.value` in base units, `.unit`, `.text`, `.formula` where letters are left open, and
    `.names` with what each name stood for and its source.
    """
    from dragonscale.commands.calc import ask

    return ask


@command(ChipsQuestion, FACTS, "chips", charts=("roofs", "flops", "hbm", "bandwidth"))
def chips():
    """What is known of each chip, and from where; what a slice of them is.

    dscale chips
    dscale chips h100
    dscale chips v5e:8x16

    Every chip, one of them with the source of each number, a slice (hosts, rings or tiers, totals), or where a
    tiled array's elements lie.
    """
    from dragonscale.commands.chips import ask

    return ask
