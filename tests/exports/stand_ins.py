"""Scripts that exports write, run with stand-ins for everything that they start.

A stand-in writes down the words and the variables that it was started with. `srun` starts a task for each host as Slurm
does, which sets `CUDA_VISIBLE_DEVICES` of every task anew, and `kubernetes_text` does to a container's words what
Kubernetes does before it starts them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PROGRAMS = (
    "vllm",
    "vllm-router",
    "python",
    "python3",
    "torchrun",
    "accelerate",
    "swift",
    "tune",
    "mpirun",
    "trtllm-serve",
    "trtllm-llmapi-launch",
    "llama-server",
    "ray",
    "aiperf",
    "uv",
    "trl",
)
RECORD = """#!/bin/sh
{ printf '%s\\0' $# "${0##*/}" "$@"; env -0; } > "$RECORD/$$"
"""
SRUN = f"""#!{sys.executable} -S
import os, subprocess, sys
hosts, options, words = os.environ["ALLOCATED"].split(), {{}}, sys.argv[1:]
while words and words[0].startswith("--"):
    name, _, value = words.pop(0)[2:].partition("=")
    options[name] = value
own = options["nodelist"].split(",") if "nodelist" in options else hosts[: int(options["nodes"])]
each = int(options["ntasks-per-node"])
assert len(own) == int(options["nodes"]) and set(own) <= set(hosts), (options, own)
assert len(own) * each == int(options["ntasks"]), options
for rank, host in enumerate(host for host in own for _ in range(each)):
    step = {{"SLURM_PROCID": str(rank), "SLURMD_NODENAME": host, "HOST": host}}
    given = {{"CUDA_VISIBLE_DEVICES": os.environ["JOB_GPUS"]}}
    subprocess.run(words, env={{**os.environ, **step, **given}}, check=True)
"""
GPUS = "0,1,2,3,4,5,6,7"


@dataclass(frozen=True)
class Started:
    """A process: its words and its variables."""

    words: list[str]
    env: dict[str, str]

    def after(self, flag: str) -> str:
        """The word after a flag."""
        return self.words[self.words.index(flag) + 1]


def run_words(words: list[str], folder: Path, hosts: int = 1, **env: str) -> list[Started]:
    """What a command starts, in the folder, on so many hosts of a job."""
    stubs, record = folder / "bin", folder / "record"
    stubs.mkdir(exist_ok=True)
    record.mkdir(exist_ok=True)
    for old in record.iterdir():
        old.unlink()
    names = [f"node{place}" for place in range(hosts)]
    scontrol = "#!/bin/sh\n" + "".join(f"echo {name}\n" for name in names)
    for name, body in {**dict.fromkeys(PROGRAMS, RECORD), "srun": SRUN, "scontrol": scontrol}.items():
        (stubs / name).write_text(body)
        (stubs / name).chmod(0o755)
    given = {"PATH": f"{stubs}:/usr/bin:/bin", "RECORD": str(record), "ALLOCATED": " ".join(names), "JOB_GPUS": GPUS}
    slurm_sets = {"SLURM_JOB_NODELIST": "node[0-9]", "SLURM_JOB_ID": "7"}
    subprocess.run(words, env={**given, **slurm_sets, **env}, check=True, timeout=60, cwd=folder)
    return [_started(path.read_bytes()) for path in sorted(record.iterdir(), key=lambda one: one.stat().st_mtime_ns)]


def _started(data: bytes) -> Started:
    count, *found = data.decode().split("\0")[:-1]
    words, env = found[: int(count) + 1], found[int(count) + 1 :]
    return Started(words, dict(line.split("=", 1) for line in env))


def run_script(text: str, folder: Path, hosts: int = 1, **env: str) -> list[Started]:
    """What a shell script starts."""
    (folder / "script").write_text(text)
    subprocess.run(["bash", "-n", "script"], check=True, cwd=folder)
    return run_words(["bash", "script"], folder, hosts, **env)


def kubernetes_text(text: str, env: Mapping[str, str]) -> str:
    """A command, an argument or a value as a container gets it (third_party/forked/golang/expansion of Kubernetes):
    `$$` is `$`, and a variable that is not there stays as it is written."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else env.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def run_containers(text: str, folder: Path, **env: str) -> list[Started]:
    """What the containers of manifests start, one after the other; config files lie in the folder."""
    documents = [one for one in yaml.safe_load_all(text) if one]
    for one in documents:
        for name, body in one.get("data", {}).items() if one["kind"] == "ConfigMap" else ():
            (folder / name).write_text(body)
    found = []
    for container in _containers(documents):
        said = {one["name"]: kubernetes_text(one["value"], env) for one in container.get("env", ()) if "value" in one}
        words = [*container.get("command", ()), *container.get("args", ())]
        found += run_words([kubernetes_text(word, {**env, **said}) for word in words], folder, **{**env, **said})
    return found


def _containers(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for one in value for found in _containers(one)]
    if not isinstance(value, dict):
        return []
    own = [value] if isinstance(value.get("command"), list) else []
    return own + [found for one in value.values() for found in _containers(one)]


def toml_text(text: str) -> str:
    """Text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def environment(**more: str) -> dict[str, str]:
    """What every launcher's scripts find set."""
    return {
        "NODE_RANK": "1",
        "MASTER_ADDR": "first",
        "SKYPILOT_NODE_RANK": "0",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "JOB_COMPLETION_INDEX": "1",
        "JOB_INDEX": "0",
        "LWS_WORKER_INDEX": "0",
        "LWS_LEADER_ADDRESS": "lead",
        "HOME": os.sep,
        **more,
    }
