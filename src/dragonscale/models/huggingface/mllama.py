"""Llama 3.2 Vision (mllama): a LLaMA with layers between that look at the image."""

from dragonscale.models.attention import CrossAttention
from dragonscale.models.huggingface.fields import Fields
from dragonscale.models.huggingface.parts import Reader, attention, decoder, mlp
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer

SPARE_ROWS = 8
"""Rows of the embedding beyond the vocabulary, for the image's tokens (transformers' MllamaTextModel)."""


def mllama(f: Fields) -> Transformer:
    """The language model with its layers of cross-attention, whose keys and values are made of the image once."""
    listed = f.numbers("cross_attention_layers")
    crossed = [3, 8, 13, 18, 23, 28, 33, 38] if listed is None else listed
    own = attention(f)
    looking = CrossAttention(own.n_heads, own.n_kv_heads, own.head_dim)
    layers = [Layer(looking if number in crossed else own, mlp(f)) for number in range(f.n_layers())]
    return decoder(f, layers, embed_rows=f.count("vocab_size") + SPARE_ROWS)


FAMILIES: dict[str, Reader] = {"mllama_text_model": mllama}
