"""Multi-token prediction modules: further layers that guess the token after next, kept beside the model in its files.

A module norms the next token's embedding and the model's last hidden state, joins them, projects them back to the
model's width, runs one layer of the model's own kind and norms the result for the head. Most share the embedding and the
head with the model; some checkpoints hold copies of either.
"""

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
    entry = ["mtp: E[b,t,d] = lookup(; W_embed[v,d])"] if own_embed else []
    entry += [
        "mtp: E[b,t,d] = norm(E[b,t,d]; w_enorm[d])",
        "mtp: R[b,t,d] = norm(R[b,t,d]; w_hnorm[d])",
        "mtp: J[b,t,dd] = join(E[b,t,d], R[b,t,d])",
        "mtp: R[b,t,d] = J[b,t,dd] · W_join[dd,d]",
    ]
    exit_lines = []
    if streams > 1:
        entry.append("mtp: R[b,t,hs,d] = mix(R[b,t,d])")
        exit_lines += [
            "mtp: Hp[b,t,hs2] = R[b,t,hs,d] · W_head_hyper[hs2,hs,d]",
            "mtp: Hp[b,t,hs2] = bias(Hp[b,t,hs2]; w_head_hyper[hs2], w_head_scale[h1])",
            "mtp: R[b,t,d] = mix(R[b,t,hs,d], Hp[b,t,hs2])",
        ]
    exit_lines.append("mtp: R[b,t,d] = norm(R[b,t,d]; w_final[d])")
    exit_lines += ["mtp: Y[b,t,v] = R[b,t,d] · W_head[v,d]"] if own_head else []
    blocks = [
        layer_section(layer, d_model, f"mtp.block{number}", modules, {"v": vocab})
        for number, layer in enumerate(layers)
    ]
    return (
        Section("mtp.entry", parsed(entry), dims, modules),
        *blocks,
        Section("mtp.exit", parsed(exit_lines), dims, modules),
    )
