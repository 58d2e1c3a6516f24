"""TensorRT-LLM: `trtllm-serve MODEL --config trtllm.yaml`, a YAML of its `LlmArgs`.

Its `tensor_parallel_size` counts all ranks of a stage: with `enable_attention_dp` each of them is a replica of the
attention, so a plan with `data` has no `tensor` beside it, and batch and token limits are those of a rank. Experts are
dealt over `moe_expert_parallel_size` of those ranks and sliced over the rest. Prompts are not cut unless chunked
prefill is on, graphs are captured for decoding alone, and only requests that fit to their end are taken. On several
hosts MPI starts a process for each GPU (`trtllm-llmapi-launch`). Pools that prefill and decode are servers of their
own, behind `trtllm-serve disaggregated`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dragonscale.exports.engines.schemes import ServedCheckpoint, checkpoint_for
from dragonscale.exports.flags import flag_words
from dragonscale.exports.header import header
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import config_file
from dragonscale.exports.written import LaunchProgram, WrittenFiles
from dragonscale.exports.yaml_text import yaml_text
from dragonscale.serving.checkpoint import own_formats, stored_in
from dragonscale.serving.legal import divisible
from dragonscale.serving.legality import architecture
from dragonscale.serving.plan import ServingPlan

TERMS = load_terms("trtllm")
PORTS = {"prefill": 8001, "decode": 8002, "": 8000}
PAGE = 32
"""Tokens of a block of its cache."""


@dataclass(frozen=True)
class TrtServer:
    """A server as its arguments (`terms/trtllm.toml`) are about it."""

    run: ServingRun

    @property
    def plan(self) -> ServingPlan:
        return self.run.file.plan

    @cached_property
    def checkpoint(self) -> ServedCheckpoint:
        """Its formats are those of the checkpoint: nothing is quantised when one is loaded."""
        run = self.run
        return checkpoint_for(run.engine.name, run.slice.chip, run.model, run.file.model, self.plan, {})

    @property
    def ranks(self) -> int:
        return self.plan.data * self.plan.tensor

    @property
    def slices(self) -> int:
        return self.ranks // self.plan.expert

    @property
    def spread(self) -> bool:
        return self.plan.data > 1

    @property
    def host_chips(self) -> int:
        return hosts_of(self.run.slice)[1]

    @property
    def at_once(self) -> int:
        """Requests of an iteration of a rank; where prompts alone run, as many as its tokens hold."""
        most = self.run.budget // max(self.run.file.traffic.prompt, 1) if self.run.prefills else 0
        return max(self.run.seqs, most)

    @property
    def chunked(self) -> bool:
        return self.cut or self.run.engine.scheduling.scheduler == "chunked"

    @property
    def cut(self) -> bool:
        """Whether prompts do not fit an iteration."""
        return self.run.file.traffic.prompt > self.run.budget

    @property
    def cache(self) -> str:
        return self.plan.kv if self.plan.kv in ("fp8", "nvfp4") else "auto"

    @property
    def whole(self) -> bool:
        return self.run.engine.scheduling.reserve == "whole"

    @property
    def graphs(self) -> dict[str, Any] | None:
        """Graphs of decoding; a server that prefills has no use for them."""
        return None if self.run.prefills else {"enable_padding": True, "max_batch_size": self.run.seqs}

    @property
    def longest(self) -> int:
        return -(-max(self.run.file.traffic.prompt, self.run.budget) // PAGE) * PAGE

    @property
    def wide(self) -> bool:
        return self.run.engine.name.endswith("-ep")

    @property
    def backend(self) -> str:
        """The kernels of the experts: WIDEEP sends tokens by AllToAll; on Blackwell fp8 by blocks is DeepGEMM's, and
        four bits are TRTLLM's for low latency and CUTLASS's with attention data parallelism; MXFP4 on Hopper is
        Triton's (examples/configs/curated and the deployment guides)."""
        plan, blackwell = self.plan, architecture(self.run.slice.chip) == "blackwell"
        if self.wide or plan.weights == "mxfp4":
            return "WIDEEP" if self.wide else "TRTLLM" if blackwell else "TRITON"
        if blackwell and plan.compute == "fp8_block":
            return "DEEPGEMM"
        return "TRTLLM" if blackwell and plan.weights == "nvfp4" and plan.data == 1 else "CUTLASS"

    @property
    def slots(self) -> int:
        """Places for experts over all ranks, redundant ones among them: as many on every rank."""
        ways = self.plan.expert
        return -(-(self.run.experts + self.run.engine.experts.redundant) // ways) * ways

    @property
    def drafts(self) -> dict[str, Any]:
        """How drafts are made: by a model of its own, by the model's own multi-token modules, or by an EAGLE-3 head."""
        drafts = self.run.file.speculation
        if not drafts.drafts or self.run.prefills:
            return {}
        if self.run.fields.get("num_nextn_predict_layers") and not drafts.draft:
            return {"decoding_type": "MTP", "num_nextn_predict_layers": drafts.drafts}
        head = f"{hub_id(self.run.file.model).rpartition('/')[2]}-EAGLE3"
        kind, model = ("DraftTarget", hub_id(drafts.draft)) if drafts.draft else ("Eagle", head)
        return {"decoding_type": kind, "max_draft_len": drafts.drafts, "speculative_model": model}


def write(run: ServingRun) -> WrittenFiles:
    """The YAML and the command of a replica, or those of two pools and of what stands before them."""
    if run.prefill is None:
        return _server(run, "trtllm.yaml")
    own, table = _server(run, "decode.yaml"), load_keys("trtllm")
    front: dict[str, Any] = {"hostname": "0.0.0.0", "port": PORTS[""]}
    for name, role, pool in (("context_servers", "prefill", run.prefill), ("generation_servers", "decode", run)):
        copies = pool.file.replicas or 1
        front[name] = {"num_instances": copies, "urls": [f"{role}-{place}:{PORTS[role]}" for place in range(copies)]}
    table.check_all(front, "disaggregated.")
    file = "disaggregated.yaml"
    words = ("trtllm-serve", "disaggregated", *flag_words(table, {"--config_file": config_file(file)}))
    program = LaunchProgram("front", words, 1, 0, port=PORTS[""])
    both = own.with_pool(_server(run.prefill, "prefill.yaml"), (program,), (TERMS.say("server_names"),))
    text = header(run, f"TensorRT-LLM {table.version}", own.differences) + yaml_text(front)
    return replace(both, files={**both.files, file: text}, addressed=(file,))


def _server(run: ServingRun, file: str) -> WrittenFiles:
    server, table = TrtServer(run), load_keys("trtllm")
    _refuse(server)
    plan, differences = server.checkpoint.plan, list(server.checkpoint.differences)
    if server.plan.spread != "copy" and server.plan.tensor > 1:
        differences.append(TERMS.difference("spread", plan=server.plan))
        plan = replace(plan, spread="copy")
    if server.cut and run.engine.scheduling.scheduler != "chunked":
        differences.append(TERMS.difference("chunks", prompt=run.file.traffic.prompt, most=run.budget))
    args = TERMS.group("server", server)
    table.check_all(args)
    text = header(run, f"TensorRT-LLM {table.version}", differences) + yaml_text(args)
    flags = flag_words(table, {"--host": "0.0.0.0", "--port": PORTS[run.role], "--config": config_file(file)})
    words = (*(["trtllm-llmapi-launch"] if run.hosts > 1 else []), "trtllm-serve", server.checkpoint.word, *flags)
    shown = {"per": "rank" if run.hosts > 1 else "host", "copies": run.file.replicas or 1, "port": PORTS[run.role]}
    program = LaunchProgram(run.role or "serve", words, *hosts_of(run.slice), **shown)
    tokens = run.engine.host.stream_interval
    told = {"stream_interval": tokens > 1 and run.decodes, "eagle": server.drafts.get("decoding_type") == "Eagle"}
    notes = (*server.checkpoint.notes, *TERMS.notes(told, tokens=tokens))
    as_run = plan if plan != server.plan else None
    return WrittenFiles({file: text}, (program,), tuple(differences), as_run, notes)


def _refuse(server: TrtServer) -> None:
    """What it cannot run at all."""
    run, plan = server.run, server.plan
    stored = own_formats(run.engine.name, run.slice.chip, run.model) is None and stored_in(run.model) == plan.weights
    split = plan.spread == "sequence" and plan.tensor > min(divisible(run.model).kv_heads, default=1)
    checks = {
        "data_with_tensor": plan.data > 1 and plan.tensor > 1,
        "drafts_in_pipeline": run.file.speculation.drafts and plan.pipe > 1 and run.decodes,
        "no_kernels": stored,
        "split_cache": plan.context > 1 or split,
    }
    said = f"context={plan.context}" if plan.context > 1 else "spread=sequence"
    version = load_keys("trtllm").version
    TERMS.refuse(checks, plan=plan, run=run, ranks=server.ranks, said=said, version=version)
