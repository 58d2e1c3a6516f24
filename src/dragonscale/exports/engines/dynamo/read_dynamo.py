"""The plan of a `DynamoGraphDeployment`: its workers' options as the engine inside would be given them.

Both forms of the resource are read: components with pod templates (v1beta1), and services with an extra pod spec
(v1alpha1), which most published recipes still have.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.engines import sglang, trtllm, vllm
from dragonscale.exports.flags import read_flags
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.keys import load_keys
from dragonscale.exports.launchers.containers import Contained, assigned, files_of, pod_containers
from dragonscale.exports.launchers.pools import pools_read
from dragonscale.exports.shell import read_commands
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms

TERMS = load_terms("dynamo")

ENGINES = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}


@dataclass(frozen=True)
class DynamoWorker:
    """A pool of workers: the container's command, the nodes of one worker, how many workers."""

    role: str
    inside: Contained
    nodes: int
    copies: int


def recognises(source: Source) -> bool:
    return any(table.get("kind") == "DynamoGraphDeployment" for table in source.tables)


def read(source: Source, given: Given) -> Imported:
    """The plan of the workers; one that decodes is the plan's, one that prefills its pool."""
    found = [worker for table in source.tables for worker in workers(table)]
    pools = [(worker, command) for worker in found if (command := engine_command(worker)) is not None]
    if not pools:
        raise InputError(f"{source.shown} is a deployment of Dynamo without a worker of {', '.join(ENGINES)}.")
    pools.sort(key=lambda one: one[0].role == "prefill")
    engine = pools[0][1][0]
    chips = [worker.inside.chips * worker.nodes for worker, _ in pools]
    commands = [(own[1], worker.inside.labels, n, worker.copies) for (worker, own), n in zip(pools, chips, strict=True)]
    inner = replace(source, files=files_of(source.tables))
    back = pools_read(inner, given, commands, ENGINES[engine].read)
    return replace(back, target="dynamo", version=load_keys("dynamo").version)


def workers(table: Mapping[str, Any]) -> list[DynamoWorker]:
    """The pools of a deployment; none of another manifest."""
    spec = table.get("spec")
    if table.get("kind") != "DynamoGraphDeployment" or not isinstance(spec, Mapping):
        return []
    found: list[DynamoWorker] = []
    components = spec.get("components")
    for one in components if isinstance(components, list) else []:
        pods = _table(_table(_table(one).get("podTemplate")).get("spec"))
        found += _pool(_table(one), str(_table(one).get("type", "")), pods)
    for name, one in _table(spec.get("services")).items():
        said = str(_table(one).get("subComponentType") or _table(one).get("componentType") or "")
        role = "prefill" if "prefill" in str(name).lower() else said
        found += _pool(_table(one), role, _old_pods(_table(one)))
    return found


def _pool(one: Mapping[str, Any], role: str, pods: Mapping[str, Any]) -> list[DynamoWorker]:
    count = _table(one.get("multinode")).get("nodeCount")
    copies = one.get("replicas")
    nodes = count if isinstance(count, int) and count > 0 else 1
    times = copies if isinstance(copies, int) and copies > 0 else 1
    return [DynamoWorker(role, inside, nodes, times) for inside in pod_containers(pods, "Dynamo")]


def _old_pods(one: Mapping[str, Any]) -> dict[str, Any]:
    """The pod of a service in the older form, where the number of GPUs is beside it."""
    extra = _table(one.get("extraPodSpec"))
    gpus = _table(_table(one.get("resources")).get("limits")).get("gpu", 0)
    container = {**_table(extra.get("mainContainer")), "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"nodeSelector": extra.get("nodeSelector"), "containers": [container]}


def engine_command(worker: DynamoWorker) -> tuple[str, str] | None:
    """The engine of a worker, and the command that would start it alone; None of a frontend."""
    for command in read_commands("\n".join([*assigned(worker.inside.names), worker.inside.script])):
        for engine in ENGINES:
            if f"dynamo.{engine}" in command.words:
                return engine, _alone(engine, command.words[command.words.index(f"dynamo.{engine}") + 1 :], worker.role)
    return None


def _alone(engine: str, words: list[str], role: str) -> str:
    if engine == "sglang":
        own = ["python3", "-m", "sglang.launch_server", *words]
        return shlex.join(own)
    model, rest = _model(words)
    if engine == "trtllm":
        read = read_flags(load_keys("dynamo"), words)
        file = read.take("--extra-engine-args")
        config = ["--config", str(file)] if file else []
        return shlex.join(["trtllm-serve", model, *config, *_trtllm_flags(read.values)])
    prefills, decodes = role == "prefill" or "prefill" in rest, role == "decode" or "decode" in rest
    mode = "kv_producer" if prefills else "kv_consumer" if decodes else "kv_both"
    rest = [word.replace("kv_both", mode) for word in _without_mode(rest)]
    return shlex.join(["vllm", "serve", model, *rest])


_TRTLLM = TERMS.tables["trtllm_flags"]


def _trtllm_flags(values: Mapping[str, Any]) -> list[str]:
    return [word for name, flag in _TRTLLM.items() if name in values for word in (flag, str(values[name]))]


def _model(words: list[str]) -> tuple[str, list[str]]:
    """The model, and the other words."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in ("--model", "--model-path"):
            value, end = (value, place + 1) if equals else ("".join(words[place + 1 : place + 2]), place + 2)
            return value, words[:place] + words[end:]
    return "", words


def _without_mode(words: list[str]) -> list[str]:
    if "--disaggregation-mode" in words:
        at = words.index("--disaggregation-mode")
        return words[:at] + words[at + 2 :]
    return [word for word in words if word not in ("--is-prefill-worker", "--is-decode-worker")]


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
