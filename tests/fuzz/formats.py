"""Every kind of file that the package reads: how a small good one is made, what reads it, how it is spoilt.

A new format is a row of `FORMATS`. `{}` in a command line is the file; where no command reads it without a device, the
function that does stands in its place.
"""

import contextlib
import gzip
import json
import random
import sqlite3
import time
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragonscale.commands.sweep.sweep_records import read_answers
from dragonscale.commands.train.lengths import read_lengths
from dragonscale.evidence.calibrate.cases import read_measurements
from dragonscale.evidence.calibrate.stack_fit import timed_keys, unknown_rows
from dragonscale.evidence.logs.reading import read_load_test, read_training_log
from dragonscale.evidence.logs.rl_log import read_rl_log
from dragonscale.evidence.logs.text import LogText
from dragonscale.physics.hardware import __file__ as _hardware
from dragonscale.physics.kernels import __file__ as _kernels
from dragonscale.physics.kernels.profile_file import read_profile
from dragonscale.serving.engine.plan_file import load_serving_plan
from dragonscale.tables import read_table
from dragonscale.training.plan.plan_file import load_training_file
from tests.evidence.logs import samples as logs
from tests.evidence.measured import rows_of, write_rows
from tests.evidence.profiles import traces, xplanes
from tests.evidence.profiles.test_nsight import EARLY, RECENT, exported
from tests.evidence.test_hlo_dumps import LONG
from tests.evidence.test_rl_logs import LOGS
from tests.fuzz.judging import Judge
from tests.fuzz.samples import CONFIG, TEXTS
from tests.fuzz.spoiling import (
    Spoiler,
    packed,
    spoil,
    spoil_bytes,
    spoil_json,
    spoil_jsonl,
    spoil_sqlite,
)
from tests.models.test_sources import llama_gguf, llama_tensors, write_safetensors

Maker = Callable[[Path], bytes]
Reader = str | Callable[[Path], object]

PUBLISHED = Path(__file__).parents[1] / "exports" / "published"
PROFILES = Path(__file__).parents[1] / "evidence" / "profiles"
TEXT = (spoil, spoil_bytes)
JSON = (spoil_json, spoil_json, spoil)


@dataclass(frozen=True)
class FileFormat:
    """A kind of file: its name on disk, a good one, what reads it, how it is spoilt."""

    name: str
    make: Maker
    readers: tuple[Reader, ...]
    ways: tuple[Spoiler, ...] = TEXT
    beside: dict[str, str] = field(default_factory=dict, hash=False)


def _text(words: str) -> Maker:
    return lambda _: words.encode()


def _written(write: Callable[[Path], object]) -> Maker:
    """The bytes of a file that a function writes."""

    def make(folder: Path) -> bytes:
        path = folder / "made"
        path.unlink(missing_ok=True)
        write(path)
        return path.read_bytes()

    return make


def _run(software: str, place: int) -> dict[str, Any]:
    """A command or config as its own software's docs show it."""
    return tomllib.loads((PUBLISHED / f"{software}.toml").read_text(encoding="utf-8"))["run"][place]


def _safetensors(path: Path) -> object:
    from dragonscale.runtime.safetensors import SafeTensors

    tensors = SafeTensors(path)
    return [tensors[name].shape for name in tensors]


def _tokenizer(path: Path) -> object:
    from dragonscale.runtime.server.text import load_text

    return load_text(path.parent)


def _rows(path: Path) -> object:
    """Rows of a dataset."""
    from dragonscale.runtime.train.documents import _documents, document_of

    return [document_of(row) for row in _documents(path)]


def _metrics(path: Path) -> object:
    from dragonscale.runtime.train.metrics import read_metrics

    return read_metrics(path)


def _sums(path: Path) -> object:
    from dragonscale.runtime.train.checkpoints import damaged

    return damaged(path.parent)


def _log(read: Callable[[LogText], object]) -> Callable[[Path], object]:
    return lambda path: read(LogText.at(str(path)))


def _import(software: str, place: int) -> str:
    """The line that reads it, with what only flags say of it."""
    run = _run(software, place)
    said = [f"--{name}={run[name]}" for name in ("on", "model") if run.get(name)]
    return " ".join(["import {} --json", *said])


IMPORTS = tuple(
    FileFormat(f"{software}-{place}.{ending}", _text(_run(software, place)["text"]), (_import(software, place),))
    for software, ending in (
        ("accelerate", "sh"), ("axolotl", "yaml"), ("deepspeed", "json"), ("dynamo", "yaml"), ("llamacpp", "sh"),
        ("llamafactory", "yaml"), ("llm-d", "yaml"), ("maxtext", "sh"), ("megatron-bridge", "sh"), ("megatron", "sh"),
        ("sgl-jax", "sh"), ("sglang", "sh"), ("swift", "sh"), ("torchtitan", "toml"), ("torchtune", "sh"),
        ("trl", "sh"), ("trtllm", "sh"), ("vllm-tpu", "sh"), ("vllm", "sh"),
    )
    for place in range(2)
)  # fmt: skip
TRAINED = "validate training {} --plan fsdp8 --model gpt2 --on h100:8 --batch 64seq --seq 128 --json"
HARDWARE, KERNELS = Path(_hardware).parent, Path(_kernels).parent
FORMATS: tuple[FileFormat, ...] = (
    FileFormat("model.gguf", _written(lambda path: llama_gguf(path, vocab=20)), ("models {}", "models {} --json"), (spoil_bytes,)),
    FileFormat("model.safetensors", _written(lambda path: write_safetensors(path, llama_tensors(d=16, ff=24, kv=8))),
               ("models .", "models . --json", _safetensors), (spoil_bytes,),
               {"config.json": CONFIG.replace("256", "16").replace("512", "24").replace("1000", "100")}),
    FileFormat("model.safetensors.index.json", _text(json.dumps({"metadata": {"total_size": 9}, "weight_map": {"a": "b"}})),
               ("models . --json",), JSON, {"config.json": CONFIG}),
    FileFormat("config.json", _text(CONFIG), ("models {}", "models {} --json", "models {} --program"), JSON),
    FileFormat("small.toml", _text(TEXTS["model_toml"][1]), ("models {} --json", "models {} --program")),
    FileFormat("step.xplane.pb", lambda _: xplanes.tpu(), ("profile {} --json",), (spoil_bytes,)),
    FileFormat("gpu.xplane.pb.gz", lambda _: gzip.compress(xplanes.shortened(gzip.decompress((PROFILES / "jax_gpu_step.xplane.pb.gz").read_bytes()))),
               ("profile {} --json",), (packed(spoil_bytes),)),
    FileFormat("torch.trace.json", _text(json.dumps(traces.kineto())), ("profile {} --json", "profile {}"), JSON),
    FileFormat("tpu.trace.json.gz", lambda _: gzip.compress(json.dumps(traces.xprof_tpu()).encode()), ("profile {} --json",),
               (packed(spoil_json), packed(spoil))),
    FileFormat("early.sqlite", _written(lambda path: exported(path, EARLY)), ("profile {} --json",), (spoil_sqlite, spoil_bytes)),
    FileFormat("recent.sqlite", _written(lambda path: exported(path, RECENT)), ("profile {} --json",), (spoil_sqlite, spoil_bytes)),
    FileFormat("step.hlo", _text(LONG), ("hlo {} --json", "hlo {} --on v5e")),
    FileFormat("checksums.json", _text(json.dumps({"state/a": "0" * 64, "facts/b": "1" * 64})), (_sums,), JSON),
    FileFormat("metrics.jsonl", _text('{"step": 1, "loss": 2.5, "grad_norm": 1.0}\n{"step": 2, "loss": 2.4, "grad_norm": 0.9}\n'),
               (_metrics,), (spoil_jsonl, spoil)),
    FileFormat("texts.jsonl", _text('{"text": "a b"}\n{"text": "c"}\n'), (_rows,), (spoil_jsonl, spoil)),
    FileFormat("turns.jsonl", _text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 2),
               (_rows,), (spoil_jsonl, spoil)),
    FileFormat("tokenizer_config.json", _text(json.dumps({"eos_token": "</s>", "chat_template": [{"name": "default", "template": "{{ messages }}"}]})),
               (_tokenizer,), JSON, {"tokenizer.json": '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}'}),
    FileFormat("tokenizer.json", _text('{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}'), (_tokenizer,), JSON),
    FileFormat("plan.toml", _text(TEXTS["train_plan"][1]), ("train gpt2 --on h100:8 --batch 64seq --seq 128 --plan {} --alone --json",
               "export {} --to megatron --batch 64seq --seq 128", load_training_file, "explain train {} --model gpt2 --on h100:8 --batch 64seq --seq 128")),
    FileFormat("serve.toml", _text(TEXTS["serve_plan"][1]), ("export {} --to vllm --json", "simulate {} --requests 50 --rate 2/s --prompt 128 --output 16 --json", lambda path: load_serving_plan(str(path)))),
    FileFormat("chip.toml", _text(TEXTS["chip"][1]), ("chips {} --json", "roofline bf16[8,8]@bf16[8,8] --on {}")),
    FileFormat("chip.yaml", _text("base: h100\nname: mine\nmemory:\n  hbm: {bandwidth: 5TB/s, capacity: 96GB}\nmatrix: {bf16: 1PFLOP/s}\n"),
               ("chips {} --json",)),
    FileFormat("torus.toml", _text(TEXTS["torus"][1]), ("chips {}", "collective all_gather 34MB --on {}:4x4x4 --json")),
    FileFormat("whole.toml", lambda _: (HARDWARE / "chips" / "v5e.toml").read_bytes(), ("chips {} --json",)),
    FileFormat("kernels.toml", lambda _: (KERNELS / "profiles" / "h100.toml").read_bytes(), ("explain serve gpt2 --on h100:1 --plan tp1 --batch 4 --profile {}", lambda path: read_profile(read_table(path, "Kernel profile"), str(path)))),
    FileFormat("dragonscale.toml", _text('color = "never"\nseq = 128\n[train]\nstack = "megatron"\n[models]\nseq = "1k"\n'),
               ("chips h100", "models gpt2 --json")),
    FileFormat("trace.csv", _text(TEXTS["trace"][1]), ("traffic {} --json", "simulate gpt2 --on h100:1 --plan tp1 --trace {} --json")),
    FileFormat("trace.jsonl", _text(TEXTS["mooncake"][1]), ("traffic {} --json",), (spoil_jsonl, spoil)),
    FileFormat("mix.toml", _text('[[class]]\nname = "chat"\nrate = "2/s"\nprompt = "128"\noutput = "16"\n\n[[class]]\nname = "bulk"\nrate = "1/s"\nprompt = "1k"\noutput = 8\n'),
               ("simulate gpt2 --on h100:1 --plan tp1 --traffic {} --requests 50 --json",)),
    FileFormat("lengths.txt", _text("12\n700\n33\n1024\n"), ("train gpt2 --on h100:8 --batch 64seq --seq 1024 --plan fsdp8 --alone --lengths {} --json", lambda path: read_lengths(str(path)))),
    FileFormat("grid.toml", _text(TEXTS["grid"][1]), ("sweep {}",)),
    *(FileFormat(f"{kind}.csv", _written(lambda path, kind=kind: write_rows(path, rows_of(kind)[:2])), (f"validate {kind} {{}} --json",))
      for kind in ("training", "inference", "serving", "collectives", "kernels")),
    *(FileFormat(name, _text(text), (TRAINED, _log(read_training_log)))
      for name, text in (("titan.log", logs.titan_log()), ("megatron.log", logs.megatron_log(16000.0, 15000.0)), ("maxtext.log", logs.maxtext_log()),
                         ("deepspeed.log", logs.deepspeed_log()), ("bars.log", logs.trainer_bars()), ("maxtext.jsonl", logs.maxtext_metrics()))),
    FileFormat("trainer_state.json", _text(logs.trainer_state()), (TRAINED, _log(read_training_log)), JSON),
    *(FileFormat(name, _text(json.dumps(record)), ("validate serving {} --plan tp1 --model llama3-8b --on h100:1 --json", _log(read_load_test)), JSON)
      for name, record in (("vllm.json", logs.vllm_result(model_id="llama3-8b", completed=40)), ("sglang.jsonl", logs.sglang_result(completed=30)),
                           ("aiperf.json", logs.aiperf_result()))),
    *(FileFormat(f"{software.lower()}-rl.log", _text(text), (_log(read_rl_log),)) for software, (text, _, _) in LOGS.items()),
    FileFormat("learn.json", _text('{"version": 1, "problems": {"rooflines.time-of-flops": {"right": 2, "wrong": 1, "last": "2026-11-17", "seeds": [0, 7]}}}'),
               ("learn --list --progress {}",), JSON),
    FileFormat("answers.jsonl", _text('{"key": "a", "command": "train", "asks": {}, "seconds": 1.0}\n' * 2),
               (lambda path: read_answers(str(path)),), (spoil_jsonl, spoil)),
    FileFormat("steps.jsonl", _text('{"key": "device", "device": "NVIDIA H200", "software": {"jax": "0.11"}}\n{"key": "a", "s": 0.5}\n'),
               (unknown_rows, timed_keys), (spoil_jsonl, spoil)),
    FileFormat("measured.jsonl", lambda _: b"".join((PROFILES.parent / "calibrate" / "h200_jax.jsonl").read_bytes().splitlines(keepends=True)[:12]),
               ("calibrate --on h200 --minutes 0 --records {} --out p.toml", read_measurements), (spoil_jsonl, spoil)),
    *IMPORTS,
)  # fmt: skip


class FileFuzzer:
    """Spoils good files of each format and lets their readers read them, each format in a folder of its own. Files that
    break a reader are kept in `broken`, where it is a folder."""

    def __init__(self, folder: Path, seed: int, limit: float = 60.0, even: bool = False) -> None:
        self.dice, self.even = random.Random(seed), even
        self.broken: Path | None = None
        self.spent = {(one, reader): [1, 0.01] for one in FORMATS for reader in one.readers}
        self.judges: dict[str, Judge] = {}
        self.originals: dict[str, bytes] = {}
        for one in FORMATS:
            place = folder / one.name.replace(".", "_")
            place.mkdir()
            self.judges[one.name], self.originals[one.name] = Judge(place, limit), one.make(folder)
            for name, text in one.beside.items():
                (place / name).write_text(text)

    @property
    def ends(self) -> Counter[str]:
        """How the readings ended."""
        return sum((judge.ends for judge in self.judges.values()), Counter())

    def cases(self, count: int) -> Iterator[tuple[list[str], str]]:
        """So many spoilt files, reader after reader, each with what is wrong with its reading. With `even` every reader
        has the same time, and so quick ones many more files."""
        every = list(self.spent)
        for place in range(count):
            weights = [runs / seconds for runs, seconds in self.spent.values()]
            one, reader = self.dice.choices(every, weights)[0] if self.even else every[place % len(every)]
            content = self.originals[one.name]
            for _ in range(self.dice.choice([1, 1, 1, 2, 4])):
                with contextlib.suppress(
                    ValueError, OSError, EOFError, zlib.error, sqlite3.Error
                ):  # it is no such file any more
                    content = self.dice.choice(one.ways)(content, self.dice)
            began = time.monotonic()
            problem = self.read(one, reader, content)
            self.spent[one, reader][0] += 1
            self.spent[one, reader][1] += time.monotonic() - began
            if problem:
                problem = f"{problem[-1200:]}\nwith the file: {content[:300]!r}"
                if self.broken is not None:
                    (self.broken / f"{place}-{one.name}").write_bytes(content)
            yield [one.name, reader if isinstance(reader, str) else reader.__name__], problem

    def read(self, one: FileFormat, reader: Reader, content: bytes) -> str:
        """What is wrong with how a reader takes a file; nothing, where all is well."""
        judge = self.judges[one.name]
        path = judge.folder / one.name
        path.write_bytes(content)
        if isinstance(reader, str):
            words = [str(path) if word == "{}" else word.replace("{}", str(path)) for word in reader.split()]
            problem = judge.line(words, content.decode(errors="replace"))
        else:
            problem = judge.reading(lambda: reader(path))
        if not problem and path.read_bytes() != content and "--records" not in str(reader):
            return "the file that was read is not what it was"
        return problem
