"""What a fuzzer writes on a command line: what people mean, nearly that, and what nobody should.

Good values are found by a flag's name, so a command's questions go deep; a flag of a new name gets
those of its type. Every value may be spoilt on its way.
"""

import random
from typing import Any

WORDS: dict[str, list[str]] = {
    "model": ["gpt2", "llama3-8b", "qwen3-0.6b", "gpt-oss-20b", "deepseek-moe-16b", "{model_toml}", "{config}"],
    "on": ["h100:1", "h100:8", "v5e:2x2", "v5p:2x2x1", "8xh100", "v6e-4", "H100:2", "h100+hbm=2x:1", "l40s", "{chip}:8", "any"],
    "batch": ["8seq", "64seq", "64Ki", "100k", "1", "16"],
    "seq": ["1024", "128", "2k", "8,192", "1"],
    "prompt": ["128", "1k", "2048", "1"],
    "output": ["16", "256", "1"],
    "documents": ["512", "1k"],
    "tokens": ["15T", "1B", "chinchilla"],
    "plan": ["tp8", "fsdp=8", "tp2 dp4", "tensor=2", "tp=8,pp=1", "pp2 v2", "{train_plan}", "{serve_plan}", "tp2 weights=fp8"],
    "fix": ["tensor=2", "tp1 z1", "remat=none|block", "zero=1|3"],
    "remat": ["none", "block,none", "selective"],
    "dtype": ["bf16", "fp8", "int8", "fp4"],
    "weights": ["bf16", "fp8", "int4"], "compute": ["bf16", "fp8"], "kv": ["bf16", "fp8"], "attention": ["bf16", "fp8"],
    "kv_dtype": ["bf16", "int8"],
    "quantize": ["fp8", "int4", "any"],
    "stack": ["auto", "megatron", "torchtitan", "maxtext", "generic", "dragonscale"],
    "engine": ["auto", "vllm", "sglang", "vLLM", "generic", "vllm,memory.share=0.8"],
    "ttft": ["500ms", "2s"], "tpot": ["30ms", "5ms"], "rate": ["2/s", "40/s", "100/min"],
    "deadline": ["30d", "2h"], "measured": ["1.5s"], "slack": ["1%", "0"], "price": ["2.5/h", "h100=2/h"],
    "expression": ["bf16[B,64] @ bf16[64,256]", "A[I_X, J] @ B[J_X, K] -> C[I, K]", "bf16[8,8] @ bf16[8,8]", "gelu(bf16[8,8])"],
    "mesh": ["X=4", "X=2,Y=4"], "sizes": ["B=64", "I=16,J=16,K=16"], "axis": ["X", "XY"],
    "kind": ["all_gather", "all_reduce", "all_to_all", "reduce_scatter", "permute", "send"],
    "size": ["34MB", "1GB", "1kB"], "memory": ["hbm", "8GB"], "source": ["book", "0,0"], "to": ["1,1"], "from": ["0,0"],
    "name": ["h100", "v5e", "gpt2", "llama3-8b", "v5e:4x4", "gb200:72", "{chip}", "{config}"],
    "requests": ["50", "200"], "trace": ["{trace}", "{mooncake}"], "lengths": ["fixed", "uniform", "lognormal", "varied"],
    "arrivals": ["poisson", "gamma", "diurnal", "at-once"], "period": ["1h"], "router": ["round_robin", "slo_aware"],
    "prefixes": ["10x256,share=0.8", "1x64"], "host_cache": ["10GB"], "prefill_on": ["h100:1"], "autoscale": ["1..4,target=8"],
    "fail": ["0@1s+1s"], "speculate": ["0.7"], "acceptance": ["0.8,0.6"], "draft": ["gpt2"], "percentile": ["90"],
    "rank": ["time", "cost"], "largest": ["batch", "model"], "chart": ["time", "memory", "latency", "occupancy"],
    "spread": ["copy", "context"], "line": ["mlp", "attention"], "solve": ["batch", "seq"], "layout": ["f32[3,5]{1,0:T(2,2)}"],
    "program": ["train", "decode"], "mode": ["canonical", "full"], "timeout": ["60s"], "option": ["xla_a=1"], "ramp": ["1s"],
    "file": ["{training}", "{inference}", "{serving}", "{collectives}", "{kernels}", "{grid}"],
    "grid": ["{grid}"], "data": ["{tokens}"], "assume": ["n_layer=2", "x=ignore"], "as": ["gpt2", "llama"], "family": ["gpt2"],
    "set": ["hbm=2x", "nvlink=900GB/s", "flops=2x,ici=2x"],
    "chips name": ["h100", "v5e", "v5e:4x4", "gb200:72", "{chip}", "{torus}:4x4x4", "{whole}", "8xh100", "v5p-8"],
    "models name": ["gpt2", "llama3-8b", "{config}", "{model_toml}"],
    "train on": ["h100:1", "h100:8", "h100:2", "v5e:2x2", "v5p:2x2x1", "8xh100", "h100+hbm=2x:2", "{chip}:2", "{torus}:2x2x1"],
    "train model": ["gpt2", "qwen3-0.6b", "{model_toml}", "{config}"],
    "train batch": ["8seq", "16seq", "16Ki"],
    "train plan": ["fsdp=8", "tp2 fsdp4", "tp1", "fsdp2", "{train_plan}", "pp2 v2 tp2", "tp=4,dp=2", "fsdp8 block"],
    "serve on": ["h100:1", "h100:2", "l40s", "v5e:2x2", "h100+hbm=2x:1", "{chip}:1", "h100:1,l40s:1"],
    "serve model": ["gpt2", "qwen3-0.6b", "llama3-8b", "{model_toml}", "gpt-oss-20b"],
    "serve prompt": ["128", "1k", "500"], "serve output": ["16", "24", "1"], "serve batch": ["8", "4seq"],
    "serve plan": ["tp1", "tensor=2", "{serve_plan}", "tp2 weights=fp8", "tp=1,kv=fp8"],
    "simulate on": ["h100:1", "h100:2", "v5e:2x2", "{chip}:1"], "simulate model": ["gpt2", "qwen3-0.6b", "{serve_plan}"],
    "simulate prompt": ["128", "500"], "simulate output": ["16", "24"], "simulate plan": ["tp1", "tp2", "kv=fp8"],
    "explain train plan": ["tp8", "fsdp8", "fsdp", "tp2 fsdp4", "dp+tp"], "explain train on": ["h100:8", "8xh100", "{chip}:8"],
    "explain train batch": ["8seq", "16seq"], "explain train seq": ["1024", "1k"], "explain train model": ["gpt2", "{config}"],
    "explain serve on": ["h100:1", "v5e:2x2"], "explain serve model": ["gpt2", "llama3-8b"], "explain serve plan": ["tp1", "tp4"],
    "explain serve prompt": ["128", "500"], "explain serve output": ["16", "24"], "explain serve batch": ["8"],
    "explain model name": ["gpt2", "llama3-8b", "{config}"],
    "verify plan": ["fsdp=8,remat=block", "tp8", "{train_plan}"], "verify on": ["h100:8", "8xh100"], "verify batch": ["8seq", "64Ki"],
    "run train plan": ["fsdp=8", "{train_plan}"], "run train model": ["gpt2", "{config}"],
    "collective on": ["v5e:4x4", "h100:16", "v5p:4x4x4", "gb200:72"], "explain collective on": ["v5e:4x4", "h100:16", "v5p:4x4x4"],
    "collective mesh": ["X=4,Y=4", ""], "explain collective mesh": ["X=4,Y=4", ""], "roofline on": ["v5e", "h100"],
    "explain roofline on": ["v5e", "h100"], "shard on": ["v5e", "v5p", ""], "roofline sizes": ["B=64", ""], "shard sizes": ["I=16,J=16,K=16", ""],
    "roofline expression": ["bf16[B,64] @ bf16[64,256]", "bf16[8,8] @ bf16[8,8]", "gelu(bf16[8,8])"],
    "explain roofline expression": ["bf16[B,64] @ bf16[64,256]"], "shard expression": ["A[I_X, J] @ B[J_X, K] -> C[I, K]"],
    "explain shard expression": ["A[I_X, J] @ B[J_X, K] -> C[I, K]"], "sweep file": ["{grid}"],
} | {f"validate {kind} file": ["{" + kind + "}"] for kind in ("training", "inference", "serving", "collectives", "kernels")}  # fmt: skip
"""Good values by a flag's name, after the command's where they differ; {braces} are files of the fuzzer's own."""

USUAL = ("model", "on", "batch", "seq", "prompt", "output", "rate", "mesh", "requests")
"""Flags that most questions need, whether or not they must be given."""

OUTPUTS = ("save", "plot", "out", "html", "timeline", "perfetto", "metrics", "checkpoints", "table")
"""Flags that name a file to write: these stay in the fuzzer's folder."""
PLACES = [
    "out.toml",
    "out.svg",
    "out.html",
    "out.json",
    "out.csv",
    "nowhere/out.json",
    "/dev/null",
    "/dev/full",
    "",
    ".",
    "out",
]

HOSTILE = [
    "", " ", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "1e308GB", "1e300T", "0", "-0", "-1", "0.5", "1.6", "00000000008",
    "9" * 23, "1e23", "-5s", "0s", "0/s", "0GB", "1e-300s", "½", "٣٤", "１２", "\x1b[31mred\x1b[0m", "\x07", "\0", "\u202e", "\udcff",
    "a" * 3000, "8" * 5000, "1,5GB", "0,5s", "1,2,3", "--", "-", "=", ",", ";", ":", "*", "x", "+", "|", "%", "1%", "101%", "-1%",
    "{}", "[]", "{", "null", "True", "none", "[1,2]", "a=b", "a=b,a=b", "=1", "tp0", "tp8 tp8", "tp99999999", "pp-1", "fsdp=1e9",
    "h100:0", "h100:8000000000000", "h100:7", "v5e:4", "v5p:4x4x4*9999999", "v5e:4x4*0", "9999999xh100", "v5p-7", "h100+hbm=0x",
    "h100+hbm=nan:8", "h100+hbm=2x+hbm=2x", "h100+x=2x", "h100+=", "h100:8+hbm=2x", "any,h100", "all", ",,", "h100,,h100", "h100:10000000",
    "nowhere.toml", "nowhere/config.json", "/dev/zero", "/dev/null", "/dev/stdin", ".", "..", "{fifo}", "{fifo}.toml", "{zero}.toml",
    "{zero}.json", "10x999999999", "1..0,target=1", "0..0,target=0", "9@1e300s", "0@nan", "1e400", "0x10", "1_000", "$5", "5$/h", "1/h",
    "2/h,3/h", "1024k", "1M", "100000000", "100000001", "1e18", "1e19", "4Ei", "0.0001k", "<script>", "'\"", "~", "\\", "\n", "a\nb", "\t",
]  # fmt: skip
_UNITS = ["GB", "GiB", "/s", "s", "ms", "k", "M", "T", "%", "x", "seq", "/h", "e9", ".5", "0" * 12]


def good(command: str, name: str, kind: Any, dice: random.Random) -> str:
    """A value that somebody means."""
    if name in OUTPUTS:
        return dice.choice(PLACES[:5])
    words = WORDS.get(f"{command} {name}") or WORDS.get(name)
    if words:
        return dice.choice(words)
    if "int" in str(kind):
        return str(dice.choice([0, 1, 2, 3, 8, 50]))
    return str(dice.choice([0.1, 0.5, 1.0, 2.0])) if "float" in str(kind) else dice.choice(["1", "a", "auto"])


def spoilt(text: str, dice: random.Random) -> str:
    """A value with one thing wrong with it."""
    place = dice.randrange(len(text) + 1)
    way = dice.randrange(8)
    if way == 0:
        return text[:place] + text[place + 1 :]
    if way == 1:
        return text[:place] + dice.choice("0123456789-+.,:=x*/ ekKMGB") + text[place:]
    if way == 2:
        return text + dice.choice(_UNITS)
    if way == 3:
        return "-" + text
    if way == 4:
        return text.swapcase()
    if way == 5:
        return text + dice.choice([",", " ", ":"]) + text
    if way == 6:
        return "".join(dice.choice("0123456789") if letter.isdigit() else letter for letter in text)
    return text.replace(dice.choice("=:x,-"), dice.choice("=:x,- "))


def any_value(command: str, name: str, kind: Any, dice: random.Random) -> str:
    """Good, nearly good or hostile; a file to write to never leaves the fuzzer's folder."""
    chance = dice.random()
    if name in OUTPUTS:
        return dice.choice(PLACES)
    if chance < 0.3:
        return good(command, name, kind, dice)
    return spoilt(good(command, name, kind, dice), dice) if chance < 0.75 else dice.choice(HOSTILE)
