"""The settings of a serving engine in groups, one for each thing that an engine decides.

The defaults leave what the profiles say unchanged. Times are in seconds.
"""

from typing import Any

import msgspec


class EngineKernels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How its kernels differ from those of the chip's profile."""

    library: str = ""
    """The library of its kernels, if the chip has a profile measured with that library alone (`jax`)."""
    matmul: float = 1.0
    """Seconds of its matmuls over the profile's."""
    prefill_attention: float = 1.0
    """The same for attention of prompts."""
    decode_attention: float = 1.0
    """The same for attention of single tokens against the cache, and for recurrent states."""
    elementwise: float = 1.0
    """Kernels of norms, activations and rotary embeddings over one each."""
    fused: bool = False
    """Whether on a single GPU, while decoding, activations are fused into the matmul before them and per-head norms
    into the write of the cache."""
    quantise: float = 0.0
    """The fraction of converting activations to block-scaled formats that is a separate kernel (0: all fused)."""
    joined: bool = True
    """Whether matmuls that read the same tensor (queries, keys and values; gate and up) are one kernel."""
    flash: bool = True
    """Whether prefill attention keeps the scores on the chip; otherwise they are written out."""
    plain_flash: bool = False
    """Whether its flash kernels are for GPUs and take plain attention only (`models.attention`), windows not while
    decoding: other prompts attend in blocks of scores in fp32, for each of which `block_bytes` are moved, and other
    caches are moved `cache_moves` times a step."""
    block_bytes: float = 24.0
    cache_moves: float = 5.0
    widening: float = 0.0
    """Seconds of matmuls with weights stored narrower than they are multiplied, over those with weights of that wider
    format, for more than `widening_rows` rows (experts': for any, and prompts write theirs out first); 0: as the
    profile times them, whose kernels widen on the fly."""
    widening_rows: int = 0
    narrow_attention: bool = False
    """Whether prefill attends in the cache's format."""
    shared_heads: tuple[int, ...] = ()
    """How many query heads may share a cached head for the decode kernel to read the cache once for all of them (empty:
    any number); with another number each query head reads it again, from the last-level cache."""
    even_caches: bool = False
    """Whether decoding reads a cache of 8 bits as well as one of 16, byte for byte; the profile's kernels for Hopper do
    not."""
    widens_drafted: bool = False
    """Whether attention that verifies several tokens of a sequence takes as long on a cache of 8 bits as on one of 16,
    since it converts the keys for every query (latent attention does not)."""
    gap_s: float = 0.0
    """Between two kernels inside a graph."""
    attention_overlap_s: float = 0.0
    """Seconds by which attention beats the profile, which was timed call by call: in a graph most of a kernel's launch
    overlaps with the kernel before it."""
    throttle: float = 1.0
    """Seconds until power slows a matmul down, over the profile's, which was timed on a chip that had rested."""


class EngineCollectives(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its collectives."""

    library: str = "nccl"
    """Whose AllReduce runs inside a node."""
    slowdown: float = 1.0
    """Seconds inside a node over the profile's; below 1 some of it overlaps with matmuls."""
    norms: bool = False
    """Whether the AllReduce of a decode step ends with the sum and the norm after it, in one kernel."""


class EngineExperts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it runs the experts of an MoE."""

    kernels: str = ""
    """The library of grouped matmuls (empty: the profile's usual; `plain`: as good as plain matmuls, tuned for the
    run)."""
    slowdown: float = 1.0
    """Seconds of grouped matmuls over that library's."""
    small_kernels: int = 0
    """Kernels of a layer beside `plain` matmuls: routing, biases, weights and sums, one after the other."""
    overlap_s: float = 0.0
    """Seconds by which a layer of experts beats the profile, which was timed call by call: in a graph the launches of
    routing, matmuls and sums overlap with the kernels before them."""
    shared_beside: bool = False
    """Whether decoding runs the shared experts on a second stream beside the routed ones, so that only their bytes
    cost time."""
    routing: str | float = "random"
    """How tokens spread over experts."""
    exchange: str = "gather"
    """Whether tokens are sent to the experts of other data ranks (`all_to_all`), gathered by all (`gather`), or sent
    where the experts are dealt over all data ranks and gathered elsewhere (`dealt`)."""
    dispatch_bytes: float = 2.0
    """Bytes sent to experts for each element of a token."""
    route_passes: float = 0.0
    """How often rows are copied on their way to experts with a capacity and back, over once each way."""
    route_kernels: int = 0
    """Kernels that sort rows by expert with a capacity, count them, and put them into boxes and back."""
    dedup: bool = False
    """Whether a prompt's token goes only once to every node (see `exchange.py`)."""
    hidden: float = 0.0
    """The fraction of the exchange that overlaps with kernels of the other half of the batch."""
    redundant: int = 0
    """Copies of experts beside the experts themselves, where they divide over the ranks (see `balance.py`)."""
    skew: float = 0.0
    """How much experts differ in demand: standard deviation over the mean (0: not at all)."""
    balanced: bool = False
    """Whether experts are placed, and copied, by their load."""
    drift: float = 0.3
    """The fraction of the skew that the placement cannot know: demand that changed since it was measured."""


class EngineHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the host (CPU) costs."""

    graphs: bool = True
    """Whether decoding is replayed from a graph; otherwise the host issues kernels one by one, and the iteration takes
    at least as long as that."""
    prompt_graphs: bool = False
    """The same for iterations with prompts."""
    graph_sizes: tuple[tuple[int, int], ...] = ()
    """Batches that graphs are captured for, as pairs: up to the first, multiples of the second. A batch between two of
    them is filled up to the next; beyond the largest kernels are issued one by one (empty: every batch has its graph).
    """
    kernel_s: float = 0.0
    """To issue a kernel."""
    expert_layer_s: float = 0.0
    """To issue a layer of experts, in addition."""
    latent_layer_s: float = 0.0
    """To issue a layer of latent attention (MLA), in addition."""
    recurrent_layer_s: float = 0.0
    """To issue a layer of linear attention, in addition."""
    loop_s: float = 0.0
    """Of the thread that launches kernels, between two iterations: with what launching takes, iterations cannot come
    faster."""
    loop_sequence_s: float = 0.0
    """The same for each decoding sequence."""
    step_s: float = 0.0
    """Exposed in every iteration."""
    prompt_step_s: float = 0.0
    """Exposed in every iteration with prompts, in addition."""
    sequence_s: float = 0.0
    """Exposed for each decoding sequence."""
    prompt_s: float = 0.0
    """Exposed for each prompt."""
    token_s: float = 0.0
    """Exposed for each token prefilled."""
    request_s: float = 0.0
    """What a request spends in front of the engine (parsing, tokenising, streaming)."""
    tokenise_s: float = 0.0
    """Of the tokeniser in front of the engine, for each token of a prompt."""
    stream_s: float = 0.0
    """Of the process that streams tokens out, for each message: iterations cannot come faster."""
    draft_step_s: float = 0.0
    """Exposed in every step that drafts: proposing, sampling what is right, scheduling that cannot run ahead."""
    stream_interval: int = 1
    """Tokens of a sequence that leave in one message."""
    sample_s: float = 0.0
    """Sampling, for each iteration."""
    sample_bytes: float = 12.0
    """Sampling, bytes moved for each logit."""

    @property
    def token_stream_s(self) -> float:
        """Of the process that streams tokens out, for each token."""
        return self.stream_s / self.stream_interval

    def front_s(self, prompt: float) -> float:
        """What passes between a client's sending a prompt and the engine's knowing."""
        return self.request_s + self.tokenise_s * prompt


class EngineMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it divides the HBM."""

    share: float = 0.9
    """The fraction of HBM that it uses, or of what weights and workspace leave free: see `share_of`."""
    share_of: str = "hbm"
    """What `share` is a fraction of: all of HBM (`hbm`), what weights, workspace and reserve leave free (`free`), or
    all of HBM but for weights and cache alone, with everything else in the rest and the reserve (`static`)."""
    reserve_bytes: float = 2e9
    """Reserved inside its share: CUDA context and communication buffers."""
    group_bytes: float = 0.0
    """Reserved in addition for collectives between chips with a faster link than PCIe."""
    context_bytes: float = 0.0
    """With `static`, the CUDA context, which is allocated before the share is taken. `group_bytes` are, too."""
    rank_bytes: float = 0.0
    """Reserved in addition for each chip of a replica."""
    least_reserve_bytes: float = 0.0
    """The smallest reserve."""
    workspace_tokens: int = 0
    """Tokens of the iteration that the workspace is for (0: `scheduling.max_tokens`)."""
    logit_bytes: float = 6.0
    """Bytes for each logit of the sequences of an iteration: 16 bits and the copy of 32 that is sampled from, and what
    sampling makes of it."""
    sampled_apart: bool = False
    """Whether the workspace is the larger of the layers' and of sampling's, as in a profiling run that does one after
    the other; otherwise their sum."""
    expert_kernels: str = ""
    """The kernels of four-bit experts, by the name that the engine's `layouts` have (empty: what it takes there)."""
    expert_rows: bool = False
    """Whether the workspace holds the rows of a full iteration of all data ranks on one chip, since with gathered
    tokens any of them may be routed to its experts."""
    page: int = 16
    """Tokens to a page of the KV cache."""
    state_blocks: bool = False
    """Whether recurrent states lie in blocks of the KV cache, of which there must be one for each sequence that may run
    (see `state_blocks.py`)."""
    even_pages: bool = False
    """Whether compressed caches of all layers take pages of one size, that of the layers that compress least."""
    whole_windows: bool = False
    """Whether sliding-window layers keep all tokens."""
    scale_bytes: float = 0.0
    """Bytes of the scale of each cached vector where the cache has 8 bits: one for a token's key and value in every
    head, one for a latent."""


class EngineOffload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights that it leaves in the host's memory."""

    layers: int = 0
    """Layers that stay there whole."""
    expert_layers: int = 0
    """Layers whose experts stay there."""
    bytes_per_s: float = 8e10
    """The bandwidth of the host's memory: two channels of DDR5-5200 unless told otherwise."""
    read: float = 0.42
    """The part of it that the CPU reaches when it multiplies weights with one token: 36.7 tokens a second of
    Qwen3-30B-A3B with the experts of 36 layers in 102 GB/s of DDR4, beside an RTX 2080
    (github.com/AlexsJones/llmfit/pull/755)."""
    switch_s: float = 3e-5
    """From the GPU to the CPU and back, for each matmul."""


class AliveTensors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many copies of each tensor are live at the peak of a compiled program: FFN hidden dims, a block of scores
    (fp32), the residual stream, one layer's cache, logits (fp32). The compiler decides, so there is a set for each kind
    of chip (`gpu`, `tpu`) and phase."""

    chip: str
    phase: str
    hidden: float
    scores: float
    residual: float
    cache: float
    logits: float


class EngineProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a program of fixed shapes computes beside the model, as XLA compiles it (see `compiled.py`)."""

    divided: bool = False
    """Whether a mesh axis that does not divide a dim leaves it whole; otherwise shards may be uneven."""
    padded_rows: int = 1
    """Rows of matmuls on GPUs are filled up to multiples of this, for the tensor cores."""
    all_keys: bool = False
    """Whether attention computes all allocated keys and masks those that are not written yet."""
    expert_capacity: float = 0.0
    """Rows that every expert has room for, over its even share (0: experts work on the rows there are)."""
    loop_s: float = 0.0
    """Seconds of a one-row matmul beyond reading its weights, if the compiler turns it into a loop (0: it does not)."""
    looped: float = 1.0
    """Seconds of such a loop over one row of each expert, over those of reading their weights."""
    scan_bytes: float = 0.0
    """Bytes moved for each weight of a layer to take it out of its stack, where layers are scanned: those of prompts.
    """
    scan_s: float = 0.0
    """Until a scan comes round."""
    attention_block: int = 0
    """Queries of a prompt that attend at a time, where they divide it."""
    alive: tuple[AliveTensors, ...] = ()
    """What is alive at the peak. With none the workspace is that of `scheduling.max_tokens`."""


class EngineScheduling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it schedules requests into iterations."""

    scheduler: str = "chunked"
    """`static`, `continuous` or `chunked`."""
    max_tokens: int = 8192
    """Tokens of an iteration at most, on each data rank."""
    max_sequences: int = 1024
    """Sequences at once at most, on each data rank."""
    draft_sequences: int = 0
    """The same where tokens are drafted and nobody says how many (0: no fewer)."""
    mixed: bool | None = None
    """Whether prompts share iterations with decoding sequences (unset: where they are chunked)."""
    reserve: str = "prompt"
    """Whether pages are taken for the `prompt` or the `whole` request at admission."""
    ahead: int = 0
    """Iterations that are scheduled before the current one ends."""
    poll: int = 1
    """New requests are looked for every so many iterations."""
    chunk: int = 0
    """Tokens of the smallest step that is compiled for chunks of prompts (0: of any number)."""
    page_each: bool = False
    """Whether admission keeps one page free for each running sequence."""

    @property
    def beside(self) -> bool:
        """Whether prompts run in the same iterations as decoding sequences."""
        if self.mixed is None:
            return self.scheduler == "chunked"
        return self.mixed


class LaunchRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults that an engine chooses on some chips (see `launch.py`): of a family, by name, by memory, or with a
    native format."""

    source: str
    family: str = ""
    names: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    format: str = ""
    least_gib: float = 0.0
    below_gib: float = float("inf")
    memory: dict[str, Any] = {}
    scheduling: dict[str, Any] = {}
    host: dict[str, Any] = {}


class ExpertLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an engine's kernels store experts of a format on some chips (see `expert_layout.py`): each rank's shard of
    the hidden dim and of the experts' inner dim is padded to multiples."""

    kernels: str
    source: str
    release: str
    """The releases that it was read in."""
    format: str
    architectures: tuple[str, ...] = ()
    """Those it is taken on; none named: all that no row before it is for."""
    names: tuple[str, ...] = ()
    """Chips it is taken on, where their architecture does not tell."""
    hidden: int = 1
    inner: int = 1
    scale_copies: int = 0
    """How often the scales are stored once more, in the order that the kernels read: the checkpoint's stay beside."""
    scale_rows: int = 1
    """The rows of these copies are filled up to multiples of this."""
