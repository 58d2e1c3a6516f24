"""NVIDIA Dynamo: a `DynamoGraphDeployment`, whose operator starts a frontend and the workers of each pool.

A worker is one of the engines inside Dynamo's runtime (`dynamo.vllm`, `dynamo.sglang`, `dynamo.trtllm`) and takes the
engine's own options, so a plan is written by the engine's module and only what belongs to a server of its own (address,
port, ranks of hosts) is left out: the operator adds the ranks of a worker over several hosts itself. Caches are handed
over by NIXL, for which workers have one role (`kv_both`).

Read are its workers' options as the engine inside would be given them, in both forms of the resource: components with
pod templates (v1beta1), and services with an extra pod spec (v1alpha1), which most published recipes still have.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.engines import sglang, trtllm, vllm
from dragonscale.exports.engines.checkpoints import half_of_pair
from dragonscale.exports.engines.vllm.write_vllm import both_roles
from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.exports.keys import flag_words, load_keys, read_flags, table_at
from dragonscale.exports.launchers.kubernetes import CONFIG, pod, verbatim
from dragonscale.exports.launchers.kubernetes import TERMS as LAUNCHERS
from dragonscale.exports.launchers.launch_parts import job_name, run_of, uses_words, with_files
from dragonscale.exports.launchers.unwrap import Contained, assigned, count_of, files_of, pod_containers, pools_read
from dragonscale.exports.runs import ServingRun, header
from dragonscale.exports.shell import read_commands
from dragonscale.exports.target import target_named
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, Word, WrittenFiles, config_file, yaml_text
from dragonscale.serving.engine.legality import NVIDIA, architecture

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
    if not any(worker.role in POOLS or "--disaggregation-mode" in worker.inside.script for worker, _ in pools):
        halves = {note for role in POOLS for note in half_of_pair(role, source)}  # workers of one role are no half
        back = replace(back, notes=tuple(note for note in back.notes if note not in halves))
    return replace(back, target="dynamo", version=load_keys("dynamo").version)


def workers(table: Mapping[str, Any]) -> list[DynamoWorker]:
    """The pools of a deployment; none of another manifest."""
    spec = table_at(table, "spec")
    if table.get("kind") != "DynamoGraphDeployment":
        return []
    found: list[DynamoWorker] = []
    components = spec.get("components")
    for one in map(table_at, components if isinstance(components, list) else []):
        found += _pool(one, str(one.get("type", "")), table_at(one, "podTemplate", "spec"))
    for name, service in table_at(spec, "services").items():
        one = table_at(service)
        said = str(one.get("subComponentType") or one.get("componentType") or "")
        found += _pool(one, "prefill" if "prefill" in str(name).lower() else said, _old_pods(one))
    return found


def _pool(one: Mapping[str, Any], role: str, pods: Mapping[str, Any]) -> list[DynamoWorker]:
    nodes, copies = count_of(table_at(one, "multinode").get("nodeCount")), count_of(one.get("replicas"))
    return [DynamoWorker(role, inside, nodes, copies) for inside in pod_containers(pods, "Dynamo")]


def _old_pods(one: Mapping[str, Any]) -> dict[str, Any]:
    """The pod of a service in the older form, where the number of GPUs is beside it."""
    extra, gpus = table_at(one, "extraPodSpec"), table_at(one, "resources", "limits").get("gpu", 0)
    container = {**table_at(extra, "mainContainer"), "resources": {"limits": {"nvidia.com/gpu": gpus}}}
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
        return shlex.join(["python3", "-m", "sglang.launch_server", *words])
    model, rest = _model(words)
    if engine == "trtllm":
        read = read_flags(load_keys("dynamo"), words)
        file = read.take("--extra-engine-args")
        config = ["--config", str(file)] if file else []
        names = TERMS.tables["trtllm_flags"].items()
        flags = [word for name, flag in names if name in read.values for word in (flag, str(read.values[name]))]
        return shlex.join(["trtllm-serve", model, *config, *flags])
    prefills, decodes = role == "prefill" or "prefill" in rest, role == "decode" or "decode" in rest
    mode = "kv_producer" if prefills else "kv_consumer" if decodes else "kv_both"
    rest = [word.replace("kv_both", mode) for word in _without_mode(rest)]
    return shlex.join(["vllm", "serve", model, *rest])


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


POOLS = ("prefill", "decode")
LEFT_OUT = TERMS.lists["left_out"]
IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
SHARED = "80Gi"
"""Shared memory of a worker, as Dynamo's recipes have it."""


def engine_of(run: ServingRun) -> str:
    """The engine inside: `vllm` of `vllm-ep` too."""
    name = run.engine.name.partition(",")[0].removesuffix("-ep")
    if name not in ENGINES:
        raise Infeasible(f"Dynamo runs {', '.join(ENGINES)}, not {run.engine.name}.")
    return name


def write(run: ServingRun) -> WrittenFiles:
    """The deployment, and the config files of its workers."""
    if architecture(run.slice.chip) not in NVIDIA:
        raise Infeasible(f"Dynamo runs on NVIDIA's GPUs, not on {run.slice.chip.title}.")
    engine = engine_of(run)
    made = ENGINES[engine].write(run)
    version, name = load_keys("dynamo").version, job_name(run, target_named("dynamo"))
    workers = [program for program in made.programs if program.chips]
    used = {file for file in made.files for one in workers if uses_words(one, config_file(file))}
    named = {file: text for file, text in made.files.items() if file in used}
    config = f"{name}-config" if named else ""
    components = [_frontend(run, engine, version)]
    components += [_worker(run, engine, version, with_files(one, CONFIG), config) for one in workers]
    graph = TERMS.group("deployment", name=name, engine=engine, components=components)
    title = f"NVIDIA Dynamo {version} with {target_named(engine).title}"
    documents = [LAUNCHERS.group("config_map", name=config, files=named)] if config else []
    text = header(run, title, made.differences) + "---\n".join(map(yaml_text, [*documents, graph]))
    title, release = target_named(engine).title, load_keys(engine).version
    pinned = TERMS.say("own_version", version=version, software=title, release=release)
    return WrittenFiles({"dynamo.k8s.yaml": text}, (), made.differences, made.as_run, (*made.notes, pinned))


def _image(engine: str, version: str) -> str:
    return f"nvcr.io/nvidia/ai-dynamo/{IMAGES[engine]}:{version}"


def _frontend(run: ServingRun, engine: str, version: str) -> dict[str, Any]:
    """What takes requests. Where prompts share a beginning, requests go to the replica that has it."""
    routed = run.file.traffic.cached > 0 and (run.file.replicas or 1) > 1
    flags = flag_words(load_keys("dynamo"), {"--router-mode": "kv" if routed else None})
    return TERMS.group("frontend", image=_image(engine, version), flags=flags)


def _worker(run: ServingRun, engine: str, version: str, program: LaunchProgram, config: str) -> dict[str, Any]:
    role = program.name if program.name in ("prefill", "decode") else ""
    args = [verbatim(str(word)) for word in worker_words(engine, program.words, role)]
    spec = pod(run_of(program, run), target_named("dynamo"), program, "", config, shm=False)
    spec["containers"][0] |= {"name": "main", "image": _image(engine, version)}
    spec["containers"][0] |= {"command": ["python3", "-m", f"dynamo.{engine}"], "args": args}
    found: dict[str, Any] = {"name": role or "Worker", "type": role or "worker"}
    found |= {"replicas": program.copies, "sharedMemorySize": SHARED}
    if program.hosts > 1:
        found["multinode"] = {"nodeCount": program.hosts}
    return {**found, "podTemplate": {"spec": spec}}


_OLDER = {"mooncake": ["nixl"], "--attn-dp-size": ["--enable-dp-attention", "--dp-size"]}
"""Words of SGLang as Dynamo has them: its images carry NIXL, and SGLang 0.5.21, which had two options for replicas of
the attention."""


def worker_words(engine: str, words: Sequence[Word], role: str) -> list[Word]:
    """A server's command as a worker's options.

    >>> worker_words("vllm", ["vllm", "serve", "m", "-tp", "2", "--port", "8100"], "prefill")
    ['--model', 'm', '-tp', '2', '--disaggregation-mode', 'prefill']
    """
    table = load_keys("dynamo")
    mode = flag_words(table, {"--disaggregation-mode": role or None})
    if engine == "trtllm":
        at = words.index("trtllm-serve")
        file = words[words.index("--config") + 1]
        return flag_words(table, {"--model": words[at + 1], "--extra-engine-args": file}) + mode
    if engine == "sglang":
        kept = without(words[words.index("sglang.launch_server") + 1 :], LEFT_OUT)
        return [new for word in kept for new in (_OLDER.get(word, [word]) if isinstance(word, str) else [word])]
    kept = both_roles(without(words[words.index("serve") + 2 :], LEFT_OUT))
    return flag_words(table, {"--model": words[words.index("serve") + 1]}) + kept + mode


def without(words: Sequence[Word], names: Sequence[str]) -> list[Word]:
    """Words without some options and their values."""
    found: list[Word] = []
    skipping = False
    for word in words:
        if isinstance(word, str) and word.startswith("-"):
            skipping = word.partition("=")[0] in names
        if not skipping:
            found.append(word)
    return found
