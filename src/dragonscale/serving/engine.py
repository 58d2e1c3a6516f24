"""What a serving engine does around the kernels: how it schedules, what it fuses, what its host costs, what it reserves.

These few constants are the part of an expectation that is not measured on kernels. There is one set for each engine,
declared with its reasons in `engines.toml`, and the same for every model, chip and row of measurements.
"""

import functools
import tomllib
from importlib import resources

import msgspec

from dragonscale.errors import unknown


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels: `collectives` names the library whose AllReduce runs inside a node, `experts` the library of grouped products
    (empty: the profile's usual; `plain`: tuned for the run, as good as plain products), `routing` how tokens spread over experts, `exchange` whether tokens are sent to experts
    of other `data` places (`all_to_all`) or gathered by all (`gather`); then `dispatch_bytes` are sent for each element of a
    token, and with `expert_dedup` only once to every node (see `exchange.py`). `matmul`, `attention`, `decode`, `grouped`,
    `reduce`: seconds of its kernels of that kind (collectives: inside a node) over the profile's. `quantise`: how much of the conversion of activations to narrow
    formats is a kernel of its own (0: fused into the kernel before). `pointwise`: kernels of norms, activations and rotary
    embeddings over one each. `narrow_attention`: whether prefill attends in the cache's format.
    `joined` of False runs products that read the same tensor (queries, keys and values; gate and up) as kernels of their own.
    `shared_heads`: how many query heads may share a cached head for its decode kernel to read the cache once for all of
    them (empty: any number); with another number each query head reads it again, from the last-level cache.
    `gap`: seconds between two kernels inside a graph. `flash` of False writes the scores of a prompt out. `throttle`: seconds until power slows a product down over
    the profile's, whose kernels were timed one at a time on a chip that had rested. `overlap`: seconds by
    which its attention kernels are done sooner than the profile's, however much they read: the profile's were timed call
    by call, and in a graph most of the way to start one hides under the kernel before.

    Host: `graphs` says whether decoding is replayed from a graph; otherwise, and in prefill unless `prompt_graphs`, the host issues kernels
    one by one, `host_kernel` seconds each and `host_experts` for a layer of experts, `host_latent` for one of latent attention, and the iteration takes at least that. `step_seconds`,
    `sequence_seconds`, `prompt_seconds`, `token_seconds`: exposed seconds of the host per iteration, per decoding sequence, per prompt and per token prefilled.
    `stream_seconds`: seconds of the process that streams tokens out, for each; iterations cannot come faster.
    `request_seconds`: what a request spends in front of the engine (parsing, tokenising, streaming).
    `sample_seconds`, `sample_bytes`: sampling, per iteration and per logit.

    Memory: `memory` is the part of HBM the engine uses, `reserve_bytes` what it keeps of that for itself; `page` tokens
    to a page; `whole_windows` of True keeps all tokens of sliding-window layers.

    Scheduling: `scheduler` (static, continuous, chunked), `max_tokens` in one iteration, `max_sequences` at once; `mixed`
    whether prompts share iterations with decoding sequences (unset: where they are chunked); `reserve` whether pages are
    taken for the `prompt` or the `whole` request at admission; `ahead` iterations are settled before the one under way ends;
    new requests are looked for every `poll` iterations."""

    name: str = "generic"
    why: str = ""
    base: str = ""
    collectives: str = "nccl"
    experts: str = ""
    routing: str | float = "random"
    exchange: str = "gather"
    dispatch_bytes: float = 2.0
    expert_dedup: bool = False
    matmul: float = 1.0
    attention: float = 1.0
    decode: float = 1.0
    grouped: float = 1.0
    reduce: float = 1.0
    quantise: float = 0.0
    pointwise: float = 1.0
    narrow_attention: bool = False
    flash: bool = True
    shared_heads: tuple[int, ...] = ()
    gap: float = 0.0
    joined: bool = True
    throttle: float = 1.0
    overlap: float = 0.0
    graphs: bool = True
    prompt_graphs: bool = False
    host_kernel: float = 0.0
    host_experts: float = 0.0
    host_latent: float = 0.0
    step_seconds: float = 0.0
    sequence_seconds: float = 0.0
    prompt_seconds: float = 0.0
    token_seconds: float = 0.0
    request_seconds: float = 0.0
    stream_seconds: float = 0.0
    sample_seconds: float = 0.0
    sample_bytes: float = 12.0
    memory: float = 0.9
    reserve_bytes: float = 2e9
    page: int = 16
    whole_windows: bool = False
    scheduler: str = "chunked"
    max_tokens: int = 8192
    max_sequences: int = 1024
    mixed: bool | None = None
    reserve: str = "prompt"
    ahead: int = 0
    poll: int = 1

    @property
    def beside(self) -> bool:
        """Whether prompts run beside decoding sequences."""
        return self.scheduler == "chunked" if self.mixed is None else self.mixed


IDEAL = Engine(name="ideal", memory=1.0, reserve_bytes=0.0, page=1, sample_bytes=0.0)
"""For bounds: nothing of the host, nothing reserved."""


@functools.cache
def engines() -> dict[str, Engine]:
    """The engines that are known, by name; one with a `base` starts from that one's constants."""
    text = (resources.files("dragonscale.serving") / "engines.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)

    def settled(name: str) -> dict[str, object]:
        table = tables[name]
        return {**(settled(table["base"]) if table.get("base") else {}), **table}

    return {name: msgspec.convert({**settled(name), "name": name}, Engine) for name in tables}


def load_engine(name: str) -> Engine:
    """An engine by name.

    >>> load_engine("vllm").scheduler
    'chunked'
    """
    if name not in engines():
        raise unknown("serving engine", name, engines())
    return engines()[name]
