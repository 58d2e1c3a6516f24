"""What replicas have beside a plan: tiers of cache behind HBM, LoRA adapters, an encoder for images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from dragonscale.errors import InputError
from dragonscale.models.lora import adapted_lines, adapter_parameters
from dragonscale.models.transformer import count_parameters
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.simulation.adapters import AdapterTimes
from dragonscale.simulation.fleet import CacheTier, Pool
from dragonscale.simulation.traffic import Prefixes

# Seconds that an iteration takes longer for each matmul with adapters: Punica adds 2 ms to a token of LLaMA-2 7B, which
# has 224 of them (arXiv:2310.18547).
ADAPTER_STEP_S = 2e-3 / 224

# Adapters in memory at a time, unless more or fewer are asked for.
ADAPTER_SLOTS = 8

# Bytes of a parameter: adapters are served in 16 bits.
ADAPTER_PARAMETER_BYTES = 2

# Patches that an encoder sees for each token that the model gets: LLaVA-OneVision's, Qwen2.5-VL's and InternVL's
# projectors merge 2 x 2.
PATCHES_PER_TOKEN = 4

# Parameters of an encoder about which nothing is known: ViT-H/14, about that of Qwen2.5-VL (arXiv:2502.13923).
ENCODER_PARAMETERS = 6.3e8

# Tokens of the prompt whose FLOP/s in the model the encoder is taken to reach.
PROBE_PROMPT = 2048


@dataclass(frozen=True)
class TierSize:
    """Bytes of a tier behind the KV cache in HBM, and its bandwidth; None: the chip's own link to its host. A `shared`
    tier is a store of all replicas."""

    size_bytes: float
    bytes_per_s: float | None = None
    shared: bool = False


@dataclass(frozen=True)
class AdapterLoad:
    """LoRA adapters that requests have: how many, of which rank, those in memory at a time, how popular each is."""

    count: int
    rank: int
    slots: int = ADAPTER_SLOTS
    skew: float = 0.0
    share: float = 1.0

    @property
    def popularity(self) -> Prefixes:
        """The distribution from which requests draw their adapter."""
        return Prefixes(self.count, 1, self.share, self.skew)


@dataclass(frozen=True)
class ImageLoad:
    """Images of a request, the tokens of each, and the parameters of their encoder (0: those of the model's own)."""

    count: int = 0
    tokens: int = 0
    encoder_parameters: float = 0.0
    patches: float = PATCHES_PER_TOKEN

    @property
    def prompt_tokens(self) -> int:
        """Tokens by which images lengthen a prompt."""
        return self.count * self.tokens


def with_tiers(pool: Pool, tiers: Sequence[TierSize], deployment: Deployment, chip_token_bytes: float) -> Pool:
    """The pool with tiers of cache behind HBM. `chip_token_bytes` are the bytes of a token's KV cache on one chip."""
    plan = deployment.plan
    # each chip holds, and loads, its own share of a token
    replica_token_bytes = chip_token_bytes * plan.tensor * plan.pipe
    cache_tiers: list[CacheTier] = []
    for tier in tiers:
        tokens = int(tier.size_bytes / replica_token_bytes)
        if not tokens:
            continue
        if tier.bytes_per_s is None:
            tokens_per_s = deployment.chip.host_link / chip_token_bytes
        else:
            tokens_per_s = tier.bytes_per_s / replica_token_bytes
        cache_tiers.append(CacheTier(tokens, tokens_per_s, tier.shared))
    return replace(pool, tiers=tuple(cache_tiers))


def with_images(pool: Pool, images: ImageLoad, deployment: Deployment) -> Pool:
    """The pool with an encoder, which reaches the FLOP/s that prompts have in the model."""
    if not images.count:
        return pool
    probe_s = pool.times.step(0, 0.0, [(PROBE_PROMPT, 0)])
    counts = count_parameters(deployment.model)
    encoder = images.encoder_parameters or float(counts.extras_by_part.get("vision", 0)) or ENCODER_PARAMETERS
    # FLOPs of an image over those of the probe: parameters times tokens, of both
    flops_ratio = encoder * images.patches * images.tokens / (float(counts.active) * PROBE_PROMPT)
    return replace(pool, image_s=probe_s * flops_ratio)


def with_adapters(pool: Pool, adapters: AdapterLoad, deployment: Deployment, chip_token_bytes: float) -> Pool:
    """The pool with LoRA adapters: less memory for the KV cache, longer steps, and loads from the host's memory."""
    layers = deployment.model.program().sections[1:-1]  # without the embedding and the head
    adapter_bytes = ADAPTER_PARAMETER_BYTES * float(sum(adapter_parameters(layers, adapters.rank).values()))
    matmuls = sum(len(adapted_lines(section)) * section.repeat for section in layers)
    chip = deployment.chip
    chips = deployment.plan.tensor * deployment.plan.pipe
    slots = min(adapters.slots, adapters.count)
    kv_tokens = pool.kv_tokens - int(slots * adapter_bytes / (chip_token_bytes * chips))
    if kv_tokens < pool.scheduler.page_tokens:
        raise InputError(
            f"{slots} adapters of {adapter_bytes / 1e9:.2f} GB leave no room for a KV cache; take fewer slots."
        )
    weights = numpy.arange(1, adapters.count + 1) ** -float(adapters.skew)
    chances = tuple(float(chance) for chance in adapters.share * weights / weights.sum())
    times = AdapterTimes(
        pool.times,
        chances,
        slots,
        step_s=ADAPTER_STEP_S * float(matmuls),
        read_s=adapter_bytes / chips / chip.bandwidth("hbm"),
    )
    return replace(
        pool,
        times=times,
        kv_tokens=kv_tokens,
        adapters=slots,
        adapter_s=adapter_bytes / chips / float(chip.host_link),
    )
