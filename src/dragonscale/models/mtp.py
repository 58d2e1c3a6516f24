"""Multi-token prediction modules: further layers that guess the token after next, kept beside the model in its files.

A module norms the next token's embedding and the model's last hidden state, joins them, projects them back to the
model's width, runs one layer of the model's own kind and norms the result for the head. Most share the embedding and
the head with the model; some checkpoints hold copies of either.
"""

from dragonscale.models.component import written
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section, parsed
from dragonscale.models.transformer import layer_section


def mtp_sections(
    layers: list[Layer], d_model: int, vocab: int, modules: int, own_embed: bool = False, own_head: bool = False
) -> tuple[Section, ...]:
    """Sections of `modules` multi-token modules, each of these layers, for the `extras` of a model."""
    if modules == 0:
        return ()
    streams = layers[0].streams
    dims = {"d": d_model, "dd": 2 * d_model, "v": vocab, "hs": streams, "hs2": streams, "h1": 1}
    there = {"own_embed": own_embed, "own_head": own_head, "many": streams > 1}
    blocks = [
        layer_section(layer, d_model, f"mtp.block{number}", modules, {"v": vocab})
        for number, layer in enumerate(layers)
    ]
    return (
        Section("mtp.entry", parsed(written("mtp_entry", there.get)), dims, modules),
        *blocks,
        Section("mtp.exit", parsed(written("mtp_exit", there.get)), dims, modules),
    )
