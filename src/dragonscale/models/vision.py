"""Vision towers as sections of a program, for the `extras` of a model: patches, blocks, and the bridge to the text.

A tower's tokens are patches, not words, so its sections stand apart from the model's own and are counted apart.
"""

from dragonscale.models.component import written
from dragonscale.models.program import Section, parsed


def patches(d_model: int, pixels: int, positions: int = 0, **options: bool) -> Section:
    """Patches of `pixels` numbers each, projected to the tower's width; `options` are a bias, a class_token, a norm and
    a norm_bias."""
    lines = written("patches", (options | {"positions": positions}).get)
    return Section("vision.patches", parsed(lines), {"d": d_model, "i": pixels, "o": positions or 1})


def norm(d_model: int, name: str, bias: bool) -> Section:
    """A norm by itself."""
    weights = "w_norm[d], w_norm_bias[d]" if bias else "w_norm[d]"
    ops = parsed([f"vision: R[b,t,d] = norm(R[b,t,d]; {weights})"])
    return Section(f"vision.{name}", ops, {"d": d_model})


def numbers(name: str, count: int, repeat: int = 1) -> Section:
    """Learnt numbers that are added or multiplied: scales, gates, tables of positions."""
    return Section(
        f"vision.{name}", parsed(["vision: R[b,t,d] = mix(R[b,t,d]; w_numbers[o])"]), {"d": 1, "o": count}, repeat
    )


def bridge(
    sizes: tuple[int, ...],
    name: str = "bridge",
    bias: bool = True,
    norm_size: int = 0,
    norm_bias: bool = True,
    repeat: int = 1,
) -> Section:
    """Matrices in a row, of these widths from first to last, after a norm over `norm_size` if there is one."""
    dims = {f"j{number}": size for number, size in enumerate(sizes)} | {"m0": norm_size}
    lines: list[str] = []
    if norm_size:
        weights = "w_norm[m0], w_norm_bias[m0]" if norm_bias else "w_norm[m0]"
        lines.append(f"vision: H0[b,t,j0] = norm(H0[b,t,j0]; {weights})")
    for number in range(len(sizes) - 1):
        before, after = f"H{number}[b,t,j{number}]", f"H{number + 1}[b,t,j{number + 1}]"
        lines.append(f"vision: {after} = {before} · W_{number}[j{number},j{number + 1}]")
        lines += [f"vision: {after} = bias({after}; w_{number}[j{number + 1}])"] if bias else []
    return Section(f"vision.{name}", parsed(lines), dims, repeat)
