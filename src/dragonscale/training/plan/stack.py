"""What a software stack does with the same plan: what it overlaps, fuses, recomputes and keeps.

Programs that compute the same thing (Megatron, MaxText, torchtitan, our own) differ in a few switches. These are the
only part of an expectation that is not measured on kernels. There is one set for each stack, declared with its reasons
in `stacks.toml`, and the same for every run of that stack. `dragonscale` is our own JAX program: its ledger is what XLA
compiles. A stack may also be a file (`mine.toml`, by `dscale calibrate --whole-steps`): a table `[stack]` with the
`base` that it starts from and the switches that differ.
"""

import functools
from typing import Any, Literal

import msgspec

from dragonscale.errors import unknown
from dragonscale.plan.settings import (
    MeasuredOn,
    canonical_name,
    is_file,
    on_kind,
    record_of_file,
    shipped_records,
    with_listed,
)
from dragonscale.tables import file_version


class StackOverlap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fraction of a transfer that can be hidden under compute."""

    tensor: float = 0.3
    """Activations over `tensor`, under the matmuls next to them."""
    context: float = 0.0
    """Keys and values gathered over `context`, under the projections next to them (or with `hops`, under the first
    kernel); 0 because Megatron's gather is not asynchronous (its `cp_comm_type`) and Llama 3's is exposed (section
    3.3.2 of its report). Those of ring attention hide under the attention to what is there."""
    expert: float = 0.0
    """Tokens on their way to experts and back."""
    expert_two_way: float = 0.0
    """The same under schedules that run one microbatch forward beside another backward (DualPipe); at least `expert`.
    """
    weight: float = 0.9
    """ZeRO-3's gathers and scatters, under the layer."""
    gradient: float = 0.8
    """The gradients' sum over replicas, under the last backward pass, and updated weights under the next forward pass.
    """
    send: float = 0.9
    """Pipeline sends after the warm-up."""
    contention: float = 0.1
    """The fraction of a hidden transfer by which it still slows the kernels that it runs under."""


class StackKernels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its kernels, relative to those of the chip's profile."""

    library: str = ""
    """Whose kernels it runs, where a profile of the chip was measured with those alone (`jax`); else the usual profile.
    """
    matmul: float = 1.0
    """Seconds of its matmuls over the profile's."""
    throttle: float = 1.0
    """Seconds until power slows a matmul down, over the profile's, which was timed on a chip that had rested."""
    head: float = 1.0
    """Seconds of the head's matmuls over those of others: most of a gradient of logits is next to nothing, which draws
    less power."""
    attention: float = 1.0
    """Seconds of its attention kernel over the profile's."""
    legacy_attention: bool = False
    """Its attention kernel was written for chips before Hopper."""
    flash: bool = True
    """Whether attention is one kernel; otherwise `square_bytes` are moved for each score."""
    square_bytes: float = 9.0
    score_bytes: float = 5.0
    """Bytes of each score that are saved where attention is not one kernel: scores, their softmax, the mask of dropout
    (two tensors in bf16, one of bytes)."""
    score_peak_bytes: float = 5.0
    """Bytes of each score that are alive at once in a layer's backward pass."""
    plain_flash: bool = False
    """Whether its flash kernel is one for GPUs that takes only plain attention (`models.attention`); what it does not
    take runs in blocks of scores in fp32, for each of which so many bytes are moved forward and backward."""
    block_bytes: float = 24.0
    block_backward_bytes: float = 60.0
    masked_square: bool = False
    """Whether attention multiplies the whole square of scores and masks half of it."""
    hops: bool = False
    """Whether attention over gathered keys is still one kernel for each chip's, with merging, as round a ring."""
    elementwise_passes: float = 1.0
    """How often an elementwise line reads and writes its tensors (1 if each is one fused kernel)."""
    cast_passes: float = 1.0
    """How much of the casts to narrow formats is not fused into other kernels."""
    loss_bytes: float = 16.0
    """Bytes moved for each logit by the loss."""


class StackEager(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that its elementwise kernels move for an element, forward and (`_back`) backward, and that it keeps, where
    it runs a kernel for each operation (`training.eager`); all of them 0 where elementwise work is fused."""

    norm: float = 0.0
    norm_back: float = 0.0
    act: float = 0.0
    act_back: float = 0.0
    add: float = 0.0
    add_back: float = 0.0
    rope: float = 0.0
    rope_back: float = 0.0
    read: float = 0.0
    """Casts of what a matmul by a weight reads, and of its gradient."""
    read_back: float = 0.0
    shared_back: float = 0.0
    """To add up the gradients of a tensor that several matmuls read."""
    adapter_read: float = 0.0
    adapter_read_back: float = 0.0
    adapter_add: float = 0.0
    adapter_add_back: float = 0.0
    norm_kept: float = 0.0
    """More than the 2 bytes of what a norm reads: its fp32 copy, its output before it is scaled."""
    act_kept: float = 0.0
    """Of SwiGLU's nonlinearity, beside what it reads."""
    own_inputs: bool = False
    """Whether matmuls that read the same norm's output, and adapters whatever they read, keep a cast copy each."""
    residual: float = 2.0
    """Bytes of the residual stream, of which checkpointing keeps each layer's."""

    @property
    def counted(self) -> bool:
        """Whether its kernels are counted one by one."""
        return self.norm > 0


class StackExperts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it runs the experts of an MoE."""

    skew: float = 1.0
    """Tokens of the busiest expert over the mean."""
    route_passes: float = 1.0
    """How often tokens are copied on their way to the experts and back, over once each way."""
    slowdown: float = 1.0
    """Seconds of grouped matmuls over those of as many plain ones."""
    launches: float = 0.0
    """Kernels issued for each expert of a grouped matmul."""
    dedup: bool = False
    """Whether a token goes only once to each chip (or node) that has several of its experts."""
    capacity: float = 0.0
    """The expert capacity factor, beyond which tokens are dropped (0: none are)."""
    pads: bool = True
    """Whether an expert with a capacity always computes that many rows, in whole rows; otherwise those it has, up to
    that many."""
    folds: bool = True
    """Whether experts may be spread over `context` too (`fold=context` of a plan)."""


class StackRecompute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What runs again in the backward pass."""

    whole: bool = True
    """Whether a recomputed block runs again whole, collectives and all; otherwise just what its gradients read
    (`plan.recompute`)."""
    selective_matmuls: float = 0.0
    """The part of its matmuls that selective recomputation runs again."""
    keeps_unread: bool = False
    """Whether it then keeps outputs that no gradient reads, as programs do that are not compiled."""
    selective_modules: str = ""
    """The modules that its selective recomputation runs again, where it goes by modules (`models.recompute_modules`);
    without any, everything but matmuls."""


class StackState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights, gradients and optimizer state: formats, and what moves them."""

    scatter_bytes: float = 4.0
    """Bytes of a gradient on the wire where ZeRO-3 scatters it, microbatch by microbatch."""
    reduce_bytes: float = 4.0
    """The same where it is summed over replicas, once a step."""
    gradient_bytes: float = 4.0
    """Bytes of a gradient in memory."""
    master_bytes: float = 4.0
    """Bytes of the master copy of a weight."""
    wide_weights: bool = False
    """Whether a model's own weights are what stands as its master copy here, cast to 16 bits as they are used
    (autocast)."""
    adapter_bytes: float = 4.0
    """Bytes of an adapter's weight, and of its gradient: PEFT's autocast_adapter_dtype and Megatron have fp32."""
    frozen_bytes: float = 2.0
    """Bytes of a weight that is not trained, where it is in no narrow format."""
    ring_gradient_bytes: float = 2.0
    """Bytes of the gradients of keys and values on their way round a ring."""
    activation_bytes: float = 2.0
    """Bytes of an activation, or its gradient, between chips: bf16 even where matmuls are narrower, which every
    published stack does for what is summed, and for exchanges over context and experts."""
    narrow_gathers: bool = False
    """Whether weights, and what a layer's matmuls read over `tensor`, are gathered in the plan's narrow format
    (Transformer Engine's gather_along_first_dim; torchtitan's Float8ColwiseParallel)."""
    narrow_weights: bool = False
    """Whether weights, and what their matmuls read, are kept in the narrow format only."""
    weight_copies: float = 0.0
    """Bytes moved per weight and microbatch to unpack gathered weights."""
    accumulate: float = 6.0
    """Bytes moved per weight and microbatch to add up gradients."""
    accumulate_more: float = 0.0
    """The same in addition where there are several microbatches."""
    update_passes: float = 1.0
    """How often the optimizer moves its state."""
    chip_updates: bool = False
    """Whether state in the host's memory is updated on the chip, to which it travels and back, and not by the host."""
    hosted_gradients: bool = False
    """Whether gradients go to the host with every microbatch where the optimizer's state is in its memory (DeepSpeed's
    ZeRO-Offload, FSDP's CPU offload); otherwise they stay on the chip until the update."""
    flat: bool = True
    """Whether state is flattened and padded so that any number of shards divides it; otherwise a dim that does not
    divide stays whole."""
    sums_everywhere: bool = False
    """Whether every gradient, vectors too, is summed over all mesh axes that do not split its weight, layers in one
    message."""


class StackMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its memory besides state and saved activations."""

    allocator: Literal["caching", "xla"] = "caching"
    """A framework's caching allocator, or buffers that XLA assigns."""
    kept_copies: float = 1.0
    """Activations kept over those that the gradients need."""
    kept_moves: float = 0.0
    """How often kept activations are moved beside being written and read: a scan over layers copies them into its
    stack, and out of it."""
    prefetch: float = 2.0
    """Layers whose weights are gathered at once."""
    logit_bytes: float = 8.0
    """Bytes held for each logit at the loss (in bf16, in fp32, their gradients, softmaxes)."""
    split_logit_bytes: float = 0.0
    """More of them where the vocabulary is split over `tensor`."""
    loss_chunks: float = 1.0
    """Pieces in which logits are made and used, one after the other (1: all are there at once)."""
    gradient_buffer: bool = False
    """Whether gradients have memory of their own all the time; otherwise each is there once it is found."""
    pipe_whole: bool = False
    """Whether ZeRO-3 under a pipeline keeps weights gathered, and gradients whole until the last microbatch."""
    frozen_gradients: bool = False
    """Whether gradients of layers' inputs stay until the backward pass is over where weights are frozen and sharded."""
    loads_whole: bool = False
    """Whether every chip loads the whole model beside its shard."""
    placeholders: bool = False
    """Whether autograd is handed an empty gradient for each shape of a layer's weights, whose gradients are added up
    elsewhere."""
    update_bytes: float = 0.0
    """Bytes that the optimizer makes for each of its parameters beside state and gradients."""
    slack: float = 1.05
    """Memory that the allocator has reserved over what it has allocated, where there is memory to spare."""
    fragmentation: float = 0.02
    """The fraction of allocated memory that is lost to fragmentation, which must fit too."""
    reserve_bytes: float = 1.5e9
    """Outside the allocator: the driver's context, the network library's buffers."""


class StackHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The host, and the slowest of many machines."""

    kernel_s: float = 0.0
    """To issue one kernel (0 with graphs)."""
    layer_s: float = 0.0
    """Between two layers of a pass: a scan comes round."""
    step_s: float = 0.0
    """Of each step."""
    straggle: float = 0.002
    """Slowdown for each doubling of the machines, all of which wait for each other once a step: NVIDIA's benchmarks of
    one model on 16 to 2,048 H100s lose 0.1 to 0.4%."""
    layer_straggle: float = 0.005
    """The same in addition for each doubling of those that gather weights, or scatter gradients, in every layer: MPT on
    8 to 512 H100s (llm-foundry's benchmarks, 0.75 +- 0.3% beside what the wires take) and on A100s."""


class Stack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stack's switches by group. `balanced`: whether the last pipeline stage may have fewer layers to make room for
    the head. `further_tokens`: whether modules that predict further tokens (MTP) are trained too. `measured` says on
    which chips its constants were settled on whole steps, and how far off it was on others; `tpu` has switches that
    differ on TPUs (`host.layer_s=0`), `production` those of runs in the software's own defaults where its published
    benchmarks add and reduce gradients in fewer bits, `tuned` those of runs that train adapters alone, `quantized`
    where the weights beside them are in few bits; `eager_models` are types of models whose attention it runs by
    separate kernels; `older_switches` are earlier releases, by what they are called, with the switches that differ.
    What it can run at all is in `legality.toml`."""

    name: str = "generic"
    why: str = ""
    base: str = ""
    when: str = ""
    """The releases that it stands for, where they are no longer the newest."""
    older: tuple[str, ...] = ()
    """Stacks that stand for earlier releases of the same software, the newest first."""
    overlap: StackOverlap = StackOverlap()
    kernels: StackKernels = StackKernels()
    experts: StackExperts = StackExperts()
    recompute: StackRecompute = StackRecompute()
    state: StackState = StackState()
    memory: StackMemory = StackMemory()
    host: StackHost = StackHost()
    eager: StackEager = StackEager()
    balanced: bool = False
    further_tokens: bool = True
    measured: tuple[MeasuredOn, ...] = ()
    tpu: tuple[str, ...] = ()
    production: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    eager_models: tuple[str, ...] = ()
    older_switches: dict[str, tuple[str, ...]] = {}


class Alive(msgspec.Struct, frozen=True):
    """How many copies of a part are alive at the peak: of logits (in bf16) and of the head's weights around the head;
    of a layer's weights, its FFN's hidden dims, a block of scores (in fp32), the residual stream, and the rows sent to
    experts in a layer's backward pass."""

    logits: float
    head: float
    weights: float
    hidden: float
    scores: float
    residual: float
    rows: float


# Fitted on compiled training steps (docs/verify.md has their number and the errors on others).
ALIVE = {
    "gpu": Alive(logits=3.3, head=1.9, weights=2.1, hidden=1.4, scores=3.2, residual=5.3, rows=7.7),
    "tpu": Alive(logits=3.4, head=0.25, weights=1.2, hidden=2.9, scores=2.05, residual=2.8, rows=3.1),
}
"""By kind of chip, as `xla_memory` counts them."""


def change(stack: Stack, group: str, **values: Any) -> Stack:
    """A stack with some switches of a group set otherwise.

    >>> change(Stack(), "experts", skew=1.5).experts.skew
    1.5
    """
    return msgspec.structs.replace(stack, **{group: msgspec.structs.replace(getattr(stack, group), **values)})


def remat_of(stack: Stack, policy: str) -> str:
    """A remat policy as a stack runs it: some recompute the modules of a list under `selective`.

    >>> remat_of(load_stack("megatron-core"), "selective"), remat_of(load_stack("torchtitan"), "selective")
    ('core_attn', 'selective')
    """
    if policy == "selective" and stack.recompute.selective_modules:
        return stack.recompute.selective_modules
    return policy


def on_chip(stack: Stack, kind: str) -> Stack:
    """A stack with the switches that it has on a kind of chip.

    >>> on_chip(load_stack("dragonscale"), "tpu").host.layer_s
    0.0
    """
    return on_kind(stack, kind, "stack", "host.layer_s=0")


# Eager attention of transformers (`eager_attention_forward`), in bf16 with a softmax in fp32, by bytes of a score.
# Saved are the softmax (4) and its cast (2). In the backward pass the gradient of the cast (2), its copy in fp32 (4)
# and the softmax's (2) are there too. A pass writes the product (2), scales it and adds the mask (4 each), reads that
# for the softmax (2 + 4), casts it (4 + 2) and reads it for the values (2).
EAGER_ATTENTION = {"flash": False, "score_bytes": 6.0, "score_peak_bytes": 14.0, "square_bytes": 24.0}


def with_attention_of(stack: Stack, model_type: str, asked: str) -> Stack:
    """A stack with the attention that it has for a type of model, or that was asked for.

    >>> with_attention_of(load_stack("unsloth"), "gemma3", "").kernels.flash
    False
    """
    if asked == "eager" or (not asked and model_type in stack.eager_models):
        return change(stack, "kernels", **EAGER_ATTENTION)
    return stack


NUMERICS = ("production", "benchmark")
"""The formats that gradients are added and reduced in: the software's defaults, or those of the published runs that its
constants were fitted on."""


def in_numerics(stack: Stack, numerics: str) -> Stack:
    """A stack with gradients in the formats of production runs, or of its published benchmarks.

    >>> [in_numerics(load_stack("megatron-core"), numerics).state.reduce_bytes for numerics in NUMERICS]
    [4.0, 2.0]
    """
    if numerics != "production" or not stack.production:
        return stack
    return with_listed(stack, "production", "stack", "state.reduce_bytes=4.0")


def with_adapters_on(stack: Stack, quantized: bool) -> Stack:
    """A stack's switches where adapters are trained beside frozen weights, which may be `quantized`; weights, gradients
    and master copy are those of the adapters.

    >>> with_adapters_on(load_stack("hf"), False).state.gradient_bytes
    4.0
    """
    if stack.tuned:
        stack = with_listed(stack, "tuned", "stack", "eager.residual=4.0")
    if quantized and stack.quantized:
        stack = with_listed(stack, "quantized", "stack", "eager.residual=4.0")
    if stack.memory.allocator == "xla":  # adapters are kept as its weights are
        return stack
    # Master copy and weight together are as wide as the adapter: an fp32 adapter is its own master copy.
    width = stack.state.adapter_bytes
    return change(stack, "state", master_bytes=width - 2.0, gradient_bytes=width)


def numerics_for(numerics: str, dtype: str) -> str:
    """The numerics that were asked for, production by default. Gradients in half precision are always accumulated in
    it (Megatron's default is fp32 under --bf16 alone)."""
    if dtype == "fp16":
        return "benchmark"
    return numerics or "production"


@functools.cache
def stacks() -> dict[str, Stack]:
    """The shipped stacks by name; one with a `base` starts from that one's switches, to any depth."""
    return shipped_records("training.plan", "stacks.toml", Stack)


@functools.lru_cache(maxsize=32)
def _from_file(path: str, _version: tuple[int, ...] | None) -> Stack:
    stack = record_of_file(path, "stack", stacks(), "software stack")
    on_chip(in_numerics(stack, "production"), "tpu")  # raises an error for a wrong setting
    return stack


def spelt_stack(name: str) -> str:
    """The name of a stack as people type it, spelled as in the table.

    >>> spelt_stack("Accelerate"), spelt_stack("auto")
    ('hf-fsdp', 'auto')
    """
    return name.strip() if is_file(name.strip()) else canonical_name(name, "stacks", stacks())


def load_stack(name: str) -> Stack:
    """A stack by name, or from a file.

    >>> load_stack("hai-llm").state.gradient_bytes
    2.0
    """
    if is_file(name):
        return _from_file(name, file_version(name))
    if name not in stacks():
        raise unknown("software stack", name, stacks(), "A file of your own ends in .toml.")
    return stacks()[name]
