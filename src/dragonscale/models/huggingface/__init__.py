"""Models from Hugging Face `config.json` files."""

from dragonscale.models.huggingface.load import load_config, model_types

__all__ = ["load_config", "model_types"]
