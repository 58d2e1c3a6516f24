"""The command inside what launches it: the containers of a Kubernetes file, the `run` of a SkyPilot task, a batch
script.

Around a command a launcher says things that a plan needs: which chips, how many of them, how many replicas. They are
handed over with the command (`Source.launch`), and count more than the comment of an export, so that an edited manifest
is read as it stands. Config files in a ConfigMap are found as if they lay beside the command.

>>> task = (
...     "resources: {accelerators: 'H100:8'}\\nnum_nodes: 2\\nrun: |\\n  vllm serve m -tp 8 -pp $SKYPILOT_NUM_NODES\\n"
... )
>>> found = unwrapped(Source(task))
>>> found.launch, found.command("vllm").words[-2:]
({'slice': 'h100:16'}, ['-pp', '2'])
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.header import read_kept
from dragonscale.exports.launchers.cluster_chips import chip_called
from dragonscale.exports.launchers.containers import Contained, assigned, containers, files_of, is_own, pods_of
from dragonscale.exports.shell import batch_flags
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.physics.hardware import parse_slice

TERMS = load_terms("launchers")


def unwrapped(source: Source) -> Source:
    """The text of the commands that a launcher's file starts; anything else as it is."""
    if re.search(r"^#SBATCH\s", source.text, re.MULTILINE):
        return replace(source, launch=_batch(source))
    tables = source.tables
    if any("apiVersion" in table and "kind" in table for table in tables):
        return source if any(map(is_own, tables)) else _manifests(source)
    if tables and isinstance(tables[0].get("run"), str) and ("resources" in tables[0] or "num_nodes" in tables[0]):
        return _task(source, tables[0])
    return source


def _batch(source: Source) -> dict[str, Any]:
    """The chips of a batch script that names them: `--gpus-per-node=h100:8`, `--gres=gpu:h100:8`,
    `--constraint=h100`."""
    flags = batch_flags(source.text)
    each = flags.get("gpus-per-node") or flags.get("gres", "").removeprefix("gpu:") or flags.get("gpus-per-task", "")
    name, _, count = each.rpartition(":")
    chip = chip_called(name) or chip_called(flags.get("constraint", ""))
    nodes = flags.get("nodes", "1").partition("-")[0]
    if not count.isdecimal() or not nodes.isdecimal():
        return {}
    return _slice(source, chip, int(count) * int(nodes)) if chip else {}


def _task(source: Source, task: Mapping[str, Any]) -> Source:
    resources = task.get("resources")
    said = resources.get("accelerators") if isinstance(resources, Mapping) else None
    name, count = _accelerators(said)
    asked = task.get("num_nodes")
    nodes = asked if isinstance(asked, int) else 1
    names = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NUM_GPUS_PER_NODE": count, **_envs(task)}
    launch: dict[str, Any] = {}
    if name.startswith("tpu-"):
        launch = _tpus(source, name.removeprefix("tpu-"), nodes)
    elif chip := chip_called(name):
        launch = _slice(source, chip, count * nodes)
    service = task.get("service")
    if isinstance(service, Mapping) and (replicas := _replicas(service)):
        launch["replicas"] = replicas
    return replace(source, text=told(source, names, str(task["run"])), launch=launch)


def _accelerators(said: Any) -> tuple[str, int]:
    """One accelerator and how many; nothing of a choice of several."""
    if isinstance(said, str):
        name, _, count = said.strip("{} ").partition(":")
        return ("", 0) if "," in said else (name.strip(), int(count) if count.strip().isdecimal() else 1)
    if isinstance(said, Mapping) and len(said) == 1:
        name, count = next(iter(said.items()))
        return str(name), count if isinstance(count, int) else 1
    return "", 0


def _replicas(service: Mapping[str, Any]) -> int:
    policy = service.get("replica_policy")
    found = service.get("replicas") or (policy.get("min_replicas") if isinstance(policy, Mapping) else 0)
    return found if isinstance(found, int) else 0


def _envs(task: Mapping[str, Any]) -> dict[str, Any]:
    envs = task.get("envs")
    return {str(name): value for name, value in envs.items() if value is not None} if isinstance(envs, Mapping) else {}


def told(source: Source, names: Mapping[str, Any], script: str) -> str:
    """A script after the comments of the file it was in and the variables that are set for it."""
    comments = [line for line in source.text.splitlines() if line.startswith("#")]
    return "\n".join([*comments, *assigned(names), script]) + "\n"


def _manifests(source: Source) -> Source:
    """The first program of the manifests that has chips (or any), with what they say of its pods; others follow it."""
    found = [one for table in source.tables for one in containers(table)]
    if not found:
        return source
    found.sort(key=lambda one: (not one.chips, "prefill" in one.name))
    first = found[0]
    script = "\n".join(told(source if one is first else Source(""), one.names, one.script) for one in found)
    return replace(source, text=script, files=files_of(source.tables), launch=_pods(source, first))


def labelled(source: Source, labels: Mapping[str, str], chips: int, jobs: int = 1) -> dict[str, Any]:
    """The slice that the labels of nodes say, where `chips` is how many a copy has."""
    if tpu := chip_called(labels.get("cloud.google.com/gke-tpu-accelerator", "")):
        shape = labels.get("cloud.google.com/gke-tpu-topology", "")
        return _tpus(source, f"{tpu}:{shape}", jobs) if shape else {}
    chip = next(filter(None, (chip_called(labels.get(name, "")) for name in _LABELS)), "")
    return _slice(source, chip, chips) if chip and chips else {}


def _pods(source: Source, one: Contained) -> dict[str, Any]:
    """What manifests say of a program's chips and replicas."""
    pods, jobs = pods_of(one)
    launch = labelled(source, one.labels, one.chips * pods * jobs, jobs)
    if one.kind in ("Deployment", "StatefulSet", "LeaderWorkerSet"):
        launch["replicas"] = one.copies
    if launch.get("replicas", 2) <= 1 and not source.kept.get("replicas"):
        del launch["replicas"]
    return launch


_LABELS = TERMS.lists["node_labels"]


def _slice(source: Source, chip: str, chips: int) -> dict[str, Any]:
    """GPUs as a slice; the header's own words where they say the same chips (it may name changes of a chip)."""
    kept = str(read_kept(source.text).get("slice", ""))
    if kept and (same := _parsed(kept)) is not None and same.chips == chips and chip_called(same.chip.name) == chip:
        return {}
    found = _parsed(f"{chip}:{chips}")
    return {"slice": str(found)} if found is not None else {}


def _tpus(source: Source, text: str, pods: int) -> dict[str, Any]:
    found = _parsed(text + (f"*{pods}" if pods > 1 else ""))
    if found is None:
        return {}
    same = _parsed(str(read_kept(source.text).get("slice", "")))
    # a topology is written in rising order, whatever the plan's own
    if same is not None and same.chips == found.chips and sorted(same.shape) == sorted(found.shape):
        return {}
    return {"slice": str(found)}


def _parsed(text: str) -> Any:
    try:
        return parse_slice(text) if text else None
    except InputError:
        return None
