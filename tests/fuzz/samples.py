"""Good files of every kind that a flag names, for command lines to name."""

import gzip
import json
import os
import shutil
from importlib import resources
from pathlib import Path

from tests.evidence.logs import samples
from tests.evidence.measured import DATA, rows_of, write_rows

CONFIG = (
    '{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, '
    '"num_key_value_heads": 2,\n'
    ' "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 4096, "tie_word_embeddings": false}\n'
)
TEXTS = {
    "chip": (
        "chip.toml",
        'base = "h100"\nname = "mine"\ntitle = "Mine"\nprice = "$2/h"\n\n[memory.hbm]\nbandwidth = '
        '"5TB/s"\ncapacity = "96GB"\n'
        '\n[matrix]\nbf16 = "1PFLOP/s"\n\n[[levels]]\nname = "node"\nbandwidth = "900GB/s"\ndegree = 8\n',
    ),
    "torus": ("torus.toml", 'base = "v5p"\nname = "box"\n\n[ici]\nlink = "90GB/s"\npod = [4, 4, 8]\nwrap = "cubes"\n'),
    "model_toml": (
        "small.toml",
        'name = "small"\nd_model = 256\nd_ff = 512\nn_heads = 4\nn_kv_heads = 2\nn_layers = 2\nvocab = 1000\n',
    ),
    "config": ("config.json", CONFIG),
    "train_plan": (
        "plan.toml",
        'model = "gpt2"\nslice = "h100:8"\nstack = "megatron"\n\n[plan]\nfsdp = 8\nremat = "block"\nmicrobatch = 1\n',
    ),
    "serve_plan": (
        "serve.toml",
        'model = "gpt2"\nslice = "h100:1"\nengine = "vllm"\nbatch = 8\n\n[plan]\ntensor = 1\nweights = "bf16"\n',
    ),
    "grid": (
        "grid.toml",
        (
            '[[train]]\nmodel = "gpt2"\nslice = ["h100:1", "h100:2"]\nbatch = "8seq"\nseq = 128\ntop = '
            '2\n\n[[serve]]\nmodel = "gpt2"\non = "h100:1"\n'
        ),
    ),
    "trace": ("trace.csv", "arrival_s,input_tokens,output_tokens\n0,50,5\n0.5,20,3\n1,700,30\n"),
    "mooncake": (
        "trace.jsonl",
        (
            '{"timestamp": 0, "input_length": 60, "output_length": 5, "hash_ids": [1]}\n{"timestamp": 900, '
            '"input_length": 6, "output_length": 5}\n'
        ),
    ),
    "log": ("run.log", samples.titan_log()),
    "megatron": ("megatron.log", samples.megatron_log(*[16000.0] * 8)),
    "load": ("result.json", json.dumps(samples.vllm_result(model_id="gpt2", completed=40), indent=1)),
    "loads": ("results.jsonl", json.dumps(samples.sglang_result(completed=30)) + "\n"),
}


def make_files(folder: Path) -> dict[str, Path]:
    """Good files by name, a pipe that nobody writes to, and devices."""
    found = {name: folder / file for name, (file, _) in TEXTS.items()}
    for file, text in TEXTS.values():
        (folder / file).write_text(text)
    for kind in ("training", "inference", "serving", "collectives"):
        found[kind] = write_rows(folder / f"{kind}.csv", rows_of(kind)[:3])
    found["kernels"] = Path(shutil.copy(DATA / "kernels.csv", folder / "kernels.csv"))
    found["hlo"] = folder / "step.hlo"
    found["hlo"].write_bytes(gzip.decompress((DATA / "xla" / "h100_mlp.hlo.gz").read_bytes()))
    whole = (resources.files("dragonscale.physics.hardware") / "chips" / "v5e.toml").read_text()
    found["whole"] = folder / "whole.toml"
    found["whole"].write_text(whole.replace('"v5e"', '"other"'))
    found["tokens"] = folder / "tokens.bin"
    found["tokens"].write_bytes(bytes(4096))
    for name in ("fifo", "fifo.toml"):
        os.mkfifo(folder / name)
    for name in ("zero.toml", "zero.json"):
        os.symlink("/dev/zero", folder / name)
    return found | {"fifo": folder / "fifo", "zero": folder / "zero"}
