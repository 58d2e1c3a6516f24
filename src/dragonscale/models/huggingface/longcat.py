"""LongCat-Flash: two latent attentions and two MLPs in a layer, and experts beside them, some of which do nothing."""

from dragonscale.models.ffn import BesideMoe, Mlp
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.moe import routed
from dragonscale.models.huggingface.parts import Reader, decoder, latent_attention
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer


def longcat(f: Fields) -> Transformer:
    """Each of its layers is two of ours: the experts start from the first half's input and join at the end of the
    second.

    Of the `moe_topk` experts that a token is sent to, as many are real as are of all experts: LongCat's report keeps it
    so by a bias (27B of 560B parameters are used on average).
    """
    chosen, zero = f.count("moe_topk", "num_experts_per_tok"), f.natural("zero_expert_num")
    experts = f.count("n_routed_experts")
    real = max(1, round(chosen * experts / (experts + zero)))
    f.must_be("zero_expert_type", "identity")
    f.must_be("attention_method", "MLA")
    f.must_be("router_bias", False)
    f.skip("mla_scale_q_lora", "mla_scale_kv_lora", "num_hidden_layers", "emb_neighbor_num", "emb_split_num")
    moe = routed(f, f.count("expert_ffn_hidden_size"), experts_per_token=real, zero_experts=zero, score_bias=True)
    mixer, mlp = latent_attention(f), Mlp(f.count("ffn_hidden_size"))
    pair = [Layer(mixer, BesideMoe(mlp, moe)), Layer(mixer, mlp)]
    return decoder(f, pair * f.n_layers("num_layers"))


FAMILIES: dict[str, Reader] = {"longcat_flash": longcat}
