"""What most families share: readers of heads, windows, MLPs, experts and the frame around the layers."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dragonscale.errors import InputError
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.latent import LatentAttention
from dragonscale.models.layer import Component, Layer
from dragonscale.models.program import Section
from dragonscale.models.transformer import Transformer, mtp_sections

LINEAR = ("linear_attention", "full_attention")
SLIDING = ("full_attention", "sliding_attention")
SPARSE = ("dense", "sparse")
"""Kinds of layers, as configs list them."""


class ModelConfig(Fields):
    """The fields of a language model, and the parts of it that they describe."""

    def d_model(self) -> int:
        """The width of the residual stream."""
        return self.count("hidden_size", "n_embd", "d_model", "n_embed", "dim")

    def attention(self, **options: Any) -> Attention:
        """Grouped-query attention with the family's own options."""
        n_heads = self.count("num_attention_heads", "n_head", "n_heads")
        frame: dict[str, Any] = {
            "n_heads": n_heads,
            # multi-head attention where no KV heads are given
            "n_kv_heads": self.optional("num_key_value_heads") or n_heads,
            "head_dim": self.optional("head_dim", "attention_head_dim") or self._share(n_heads),
            # Gemma 2 bends scores to ±50 by a tanh; null or 0 is off
            "soft_cap": bool(self.value("attn_logit_softcapping")),
        }
        return Attention(**(frame | options))

    def full_heads(self, **options: Any) -> Attention:
        """Attention with as many KV heads as heads, unless said otherwise, that share the width evenly."""
        n_heads = self.count("num_attention_heads", "n_head", "n_heads", "num_heads")
        frame: dict[str, Any] = {"n_heads": n_heads, "n_kv_heads": n_heads, "head_dim": self._share(n_heads)}
        return Attention(**(frame | options))

    def _share(self, n_heads: int) -> int:
        return self.split_evenly(self.d_model(), n_heads, "a hidden size")

    def biased_attention(self, **options: Any) -> Attention:
        """Attention whose `attention_bias` puts a bias on all four projections."""
        bias = self.flag("attention_bias")
        return self.attention(qkv_bias=bias, out_bias=bias, **options)

    def latent_attention(self, **options: Any) -> LatentAttention:
        """Multi-head latent attention."""
        # all heads share one latent, and a query's head is nope + rope wide: these fields repeat that or are unused
        self.skip("num_key_value_heads", "head_dim", "qk_head_dim")
        return LatentAttention(
            n_heads=self.count("num_attention_heads"),
            q_rank=self.optional("q_lora_rank"),
            kv_rank=self.count("kv_lora_rank"),
            nope_dim=self.count("qk_nope_head_dim"),
            rope_dim=self.count("qk_rope_head_dim"),
            v_head_dim=self.count("v_head_dim"),
            bias=self.flag("attention_bias"),
            **options,
        )

    def mlp(self, **options: Any) -> Mlp:
        """A feed-forward part of `intermediate_size`."""
        return Mlp(self.count("intermediate_size"), **options)

    def routed(self, d_ff: int | None = None, **options: Any) -> Moe:
        """The experts, of `moe_intermediate_size` unless said otherwise, their counts under whichever names the family
        uses.

        `intermediate_size` beside it is that of dense layers, of which there may be none.
        """
        self.skip("intermediate_size")
        # Mixtral and gpt-oss, Qwen, DeepSeek, ERNIE
        names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
        chosen = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
        d_ff = d_ff or self.count("moe_intermediate_size")
        used = options.pop("experts_per_token", None) or self.count(*chosen)
        return Moe(self.count(*names), used, d_ff, **options)

    def with_shared(self, **options: Any) -> Moe:
        """Experts beside shared ones of the same size."""
        # several shared experts are one MLP as wide as all of them
        shared = self.natural("n_shared_experts", "num_shared_experts") * self.count("moe_intermediate_size")
        return self.routed(shared_d_ff=shared, **options)

    def is_sparse(self) -> list[bool]:
        """Qwen's rule: every `decoder_sparse_step`-th layer has experts unless it is among `mlp_only_layers`."""
        step, dense = self.natural("decoder_sparse_step"), self.numbers("mlp_only_layers") or []
        has_experts = self.natural("num_experts") > 0 and step > 0
        return [has_experts and i not in dense and (i + 1) % step == 0 for i in range(self.n_layers())]

    def sparse_from(self, first: int, step: int = 1) -> list[bool]:
        """Which layers have experts: by the list in `mlp_layer_types`, else from one on, every so many."""
        return self.either("mlp_layer_types", SPARSE, lambda i: i >= first and i % step == 0)

    def windows(self, n_layers: int, otherwise: Callable[[int], object]) -> list[int | None]:
        """Each layer's window by `layer_types`; without that field, `otherwise` says which layers have one."""
        window = self.optional("sliding_window")
        local = self.either("layer_types", SLIDING, lambda number: window and otherwise(number), n_layers)
        return by_layer(local, window, None)

    def ffns(self, sparse: Iterable[object], moe: Component, **options: Any) -> list[Component]:
        """The feed-forward half of each layer: the experts where it is sparse, else a dense MLP with these options."""
        halves: list[Component] = []
        for is_sparse in sparse:
            # `intermediate_size` need not be given where no layer is dense
            halves.append(moe if is_sparse else self.mlp(**options))
        return halves

    def multi_token(
        self, layers: list[Layer], modules: str = "num_nextn_predict_layers", copies: bool = False
    ) -> tuple[Section, ...]:
        """The model's multi-token modules, each of these layers; with `copies` of the embedding and the head."""
        count, vocab = self.natural(modules), self.count("vocab_size")
        return mtp_sections(layers, self.d_model(), vocab, count, own_embed=copies, own_head=copies)

    def per_layer(self, name: str) -> list[int]:
        """A number of at least one for every layer: one for all, or a list."""
        n_layers = self.n_layers()
        if not isinstance(self.value(name), list):
            return [self.count(name)] * n_layers
        listed = self.numbers(name) or []
        if len(listed) != n_layers or 0 in listed:
            raise InputError(f"{self.what} has {len(listed)} entries in {name} for {n_layers} layers.")
        return listed

    def layers_in(self, listed: Collection[int]) -> list[bool]:
        """Which layers are among these numbers."""
        return [number in listed for number in range(self.n_layers())]

    def decoder(self, layers: Sequence[Layer], **options: Any) -> Transformer:
        """The frame: embedding, layers, final norm and head."""
        spelt = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")
        # some files have two of these, which need not agree: the first counts
        lengths = list(filter(None, map(self.natural, spelt)))
        scaling = self.value("rope_scaling") or self.value("rope_parameters")
        frame: dict[str, Any] = {
            "name": self.text("model_type") or self.what,
            "d_model": self.d_model(),
            "vocab": options.pop("vocab", None) or self.count("vocab_size"),
            "tied": self.flag("tie_word_embeddings"),
            "context": _stretched(next(iter(lengths), None), scaling),
        }
        return Transformer(layers=tuple(layers), **(frame | options))


Reader = Callable[[ModelConfig], Transformer]


def _stretched(stated: int | None, scaling: object) -> int | None:
    """The context with YaRN's stretch of the original one, where a config states the shorter (vllm/config/model.py does
    the same; most state the stretched length)."""
    if stated is None or not isinstance(scaling, Mapping):
        return stated
    kind = scaling.get("rope_type") or scaling.get("type")
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if kind != "yarn" or not isinstance(factor, int | float) or not isinstance(original, int) or not 1 <= factor <= 1e6:
        return stated
    return max(stated, round(original * factor))


def paired(mixers: Iterable[Component | None], ffns: Iterable[Component | None]) -> list[Layer]:
    """Plain layers, each with its mixer and its feed-forward part."""
    return [Layer(mixer, ffn) for mixer, ffn in zip(mixers, ffns, strict=True)]


T = TypeVar("T")


def by_layer(mask: Iterable[object], chosen: T, other: T) -> list[T]:
    """`chosen` for the layers where the mask is true, `other` for the rest."""
    return [chosen if flag else other for flag in mask]


def all_but_every(step: int) -> Callable[[int], bool]:
    """True for layers that are not the last of each `step`.

    >>> [all_but_every(3)(number) for number in range(4)]
    [True, True, False, True]
    """
    return lambda number: step > 0 and (number + 1) % step != 0


def _qwen(f: ModelConfig, n_layers: int, moe: bool = False) -> list[int | None]:
    """With `use_sliding_window`, from layer `max_window_layers` on; in Qwen 2's MoE on every other layer before it."""
    used, first = f.flag("use_sliding_window"), f.natural("max_window_layers")

    def has_window(number: int) -> bool:
        if moe:
            return number % 2 == 0 and number < first
        return number >= first

    spans = f.windows(n_layers, has_window)  # reads layer_types also where no window is used
    if not used:
        return [None] * n_layers
    return spans


def _where_used(f: ModelConfig, n_layers: int) -> list[int | None]:
    if not f.flag("use_sliding_window"):
        return [None] * n_layers
    return [f.optional("sliding_window")] * n_layers


def _from_layer(f: ModelConfig, n_layers: int) -> list[int | None]:
    first = f.natural("max_window_layers")
    return f.windows(n_layers, lambda number: number >= first)


def _without_rope(f: ModelConfig, n_layers: int) -> list[int | None]:
    """SmolLM 3: where a window is used, the layers that do not rotate have it."""
    used, step = f.flag("use_sliding_window"), f.natural("no_rope_layer_interval")
    # per layer: 1 where positions rotate, despite the field's name
    rotates = f.numbers("no_rope_layers") or [step == 0 or (i + 1) % step != 0 for i in range(n_layers)]
    return f.windows(n_layers, lambda number: used and number < len(rotates) and not rotates[number])


def _pattern(f: ModelConfig, n_layers: int) -> list[int | None]:
    """EXAONE's `sliding_window_pattern`: a string of kinds, or how many layers it spans."""
    pattern = f.value("sliding_window_pattern")
    if isinstance(pattern, str):  # such as LLLG: local layers and one global
        return f.windows(n_layers, all_but_every(len(pattern)))
    step = f.natural("sliding_window_pattern")
    return f.windows(n_layers, all_but_every(step))


RULES: dict[str, Callable[[ModelConfig, int], list[int | None]]] = {
    "everywhere": lambda f, n_layers: [f.optional("sliding_window")] * n_layers,
    "where_used": _where_used,
    "all": lambda f, n_layers: f.windows(n_layers, lambda _: True),
    "all_but_first_of_four": lambda f, n_layers: f.windows(n_layers, lambda number: number % 4),
    "qwen": _qwen,
    "qwen_moe": lambda f, n_layers: _qwen(f, n_layers, moe=True),
    "from_layer": _from_layer,
    "without_rope": _without_rope,
    "pattern": _pattern,
}
"""Which layers have a sliding window, for those families whose rule is not just every so many layers."""
