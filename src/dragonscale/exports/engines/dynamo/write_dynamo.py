"""NVIDIA Dynamo: a `DynamoGraphDeployment`, whose operator starts a frontend and the workers of each pool.

A worker is one of the engines inside Dynamo's runtime (`dynamo.vllm`, `dynamo.sglang`, `dynamo.trtllm`) and takes the
engine's own options, so a plan is written by the engine's module and only what belongs to a server of its own (address,
port, ranks of hosts) is left out: the operator adds the ranks of a worker over several hosts itself. Caches are handed
over by NIXL, for which workers have one role (`kv_both`).
"""

from collections.abc import Sequence
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.engines.dynamo.read_dynamo import ENGINES
from dragonscale.exports.engines.vllm.flags import both_roles
from dragonscale.exports.flags import flag_words
from dragonscale.exports.header import header
from dragonscale.exports.keys import load_keys
from dragonscale.exports.launchers.launch_parts import job_name, run_of, uses_words, with_files
from dragonscale.exports.launchers.pods import CONFIG, config_map, manifest, pod, verbatim
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.target import target_named
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import Word, config_file
from dragonscale.exports.written import LaunchProgram, WrittenFiles
from dragonscale.exports.yaml_text import yaml_text
from dragonscale.serving.legality import NVIDIA, architecture

TERMS = load_terms("dynamo")

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
    spec = {"backendFramework": engine, "components": components}
    graph = manifest("DynamoGraphDeployment", {"name": name}, spec)
    title = f"NVIDIA Dynamo {version} with {target_named(engine).title}"
    documents = [config_map(config, named)] if config else []
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
    one = {"name": "main", "image": _image(engine, version), "command": ["python3", "-m", "dynamo.frontend"]}
    pods = {"spec": {"containers": [{**one, **({"args": flags} if flags else {})}]}}
    return {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": pods}


def _worker(run: ServingRun, engine: str, version: str, program: LaunchProgram, config: str) -> dict[str, Any]:
    role = program.name if program.name in ("prefill", "decode") else ""
    spec = pod(run_of(program, run), target_named("dynamo"), program, "", config)
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] != "shm"]
    container = spec["containers"][0]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "shm"]
    args = [verbatim(str(word)) for word in worker_words(engine, program.words, role)]
    container |= {"name": "main", "image": _image(engine, version)}
    container |= {"command": ["python3", "-m", f"dynamo.{engine}"], "args": args}
    spec["containers"] = [{key: value for key, value in container.items() if value != []}]
    found: dict[str, Any] = {"name": role or "Worker", "type": role or "worker"}
    found |= {"replicas": program.copies, "sharedMemorySize": SHARED}
    if program.hosts > 1:
        found["multinode"] = {"nodeCount": program.hosts}
    return {**found, "podTemplate": {"spec": {key: value for key, value in spec.items() if value != []}}}


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
