"""The gradient of a layer, taken apart, so that it can wait, and cut in two, so that only a part of it has to wait.

What `jax.vjp` gives back is a function with arrays inside. `Pullback` takes the arrays out, so that they can lie in a
slot, but for the weights, which lie where they are.

`halves_of` cuts the function in two. What the gradient of the layer's input needs is computed now, and what a remat
policy has computed again; the rest, which are the matmuls that make gradients of weights and their sums over chips,
later. What both of them read is kept where it is the result of a matmul, a collective or a loop or comes from the
gradient; all else, such as a norm's output or a tensor in a wider type, is made again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

Layer = Callable[[Any, jax.Array], jax.Array]
"""A layer, or what repeats of a pattern of them: (its weights, activations) to activations of the same shape."""
MOVES = ("all_gather", "all_to_all", "ppermute", "psum", "ragged_all_to_all", "reduce_scatter")
HEAVY = ("conv_general_dilated", "dot_general", "gather", "ragged_dot_general", "scatter-add", "sort", "top_k")
"""What is not computed twice, beside everything with a program of its own (loops, branches, kernels)."""
RECOMPUTED = ("checkpoint", "remat", "remat2")
"""What JAX calls a part of a program that a remat policy recomputes, from one version to the next."""


@dataclass(frozen=True)
class Pullback:
    """The gradient of a layer: its structure, for each of its leaves the weight that it is (-1: none), and the shapes
    of those that are none."""

    tree: Any
    weights: tuple[int, ...]
    kept: tuple[Any, ...]

    @classmethod
    def of(cls, layer: Layer, weights: Any, given: Any) -> "Pullback":
        """As a layer of such weights and activations has it."""
        found: list[Any] = []

        def traced(weights: Any, given: jax.Array) -> list[jax.Array]:
            leaves, tree = jax.tree.flatten(jax.vjp(layer, weights, given)[1])
            known = [id(leaf) for leaf in jax.tree.leaves(weights)]
            found.extend((tree, tuple(known.index(id(leaf)) if id(leaf) in known else -1 for leaf in leaves)))
            return [leaf for leaf, place in zip(leaves, found[1], strict=True) if place < 0]

        kept = tuple(jax.eval_shape(traced, weights, given))
        return cls(found[0], found[1], kept)

    def own(self, pull: Any) -> list[jax.Array]:
        """What of a gradient has to be kept."""
        leaves = jax.tree.leaves(pull)
        return [leaf for leaf, place in zip(leaves, self.weights, strict=True) if place < 0]

    def __call__(self, kept: Sequence[jax.Array], weights: Any, slope: jax.Array) -> tuple[Any, jax.Array]:
        """The gradients of weights and input, of what was kept and the gradient of the output."""
        known, rest = jax.tree.leaves(weights), iter(kept)
        return jax.tree.unflatten(self.tree, [next(rest) if at < 0 else known[at] for at in self.weights])(slope)


@dataclass(frozen=True)
class Halves:
    """The gradient of a layer in two: `now` (kept, weights, slope) gives that of the input and what is put off, whose
    shapes are `late`; `later` (kept, weights, what was put off) those of the weights."""

    now: Callable[..., tuple[jax.Array, list[jax.Array]]]
    later: Callable[..., Any]
    late: tuple[Any, ...]


def halves_of(pullback: Pullback, weights: Any, slope: Any) -> Halves:
    """A gradient cut in two, for weights and a slope of such shapes."""
    closed, shapes = jax.make_jaxpr(pullback, return_shape=True)(list(pullback.kept), weights, slope)
    program, tree = _unfolded(closed.jaxpr), jax.tree.structure(shapes[0])
    early, late, kept = _cut(program, program.invars[-1])
    *to_weights, back = program.outvars

    def run(eqns: list[JaxprEqn], given: list[Var], made: list[Any], values: list[Any]) -> list[Any]:
        invars = [*program.constvars, *given]
        part = Jaxpr((), invars, made, eqns, program.effects, program.debug_info.with_unknown_names())
        return jaxpr_as_fun(closed.replace(jaxpr=part, consts=[]))(*closed.consts, *values)

    def now(own: list[jax.Array], weights: Any, slope: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        found, *rest = run(early, program.invars, [back, *kept], jax.tree.leaves((own, weights, slope)))
        return found, rest

    def later(own: list[jax.Array], weights: Any, put_off: list[jax.Array]) -> Any:
        given = [*program.invars[:-1], *kept]
        return jax.tree.unflatten(tree, run(late, given, to_weights, jax.tree.leaves((own, weights, put_off))))

    return Halves(now, later, tuple(one.aval for one in kept))


def _unfolded(program: Jaxpr) -> Jaxpr:
    """The same program with what is recomputed line by line, not as a function of its own."""
    eqns, names = list[JaxprEqn](), dict[Any, Any]()

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [one if isinstance(one, Literal) else names.get(one, one) for one in atoms]

    def unfold(inner: Jaxpr) -> None:
        for eqn in inner.eqns:
            own = eqn.params.get("jaxpr")
            if eqn.primitive.name in RECOMPUTED and isinstance(own, Jaxpr):
                names.update(zip(own.invars, renamed(eqn.invars), strict=True))
                unfold(own)
                names.update(zip(eqn.outvars, renamed(own.outvars), strict=True))
            else:
                names.update({one: Var(one.aval) for one in eqn.outvars})
                eqns.append(eqn.replace(invars=renamed(eqn.invars), outvars=renamed(eqn.outvars)))

    unfold(program)
    return program.replace(eqns=eqns, outvars=renamed(program.outvars))


def _cut(program: Jaxpr, slope: Var) -> tuple[list[JaxprEqn], list[JaxprEqn], list[Var]]:
    """What makes the last output, what makes the others, and what the latter read of the former."""
    *others, back = program.outvars
    first, sloped = _makers(program.eqns, {back}), {slope}
    for eqn in program.eqns:
        if sloped & _variables(eqn.invars):
            sloped |= set(eqn.outvars)
    wanted, late, kept = _variables(others), list[JaxprEqn](), list[Var]()
    for place in reversed(range(len(program.eqns))):
        eqn = program.eqns[place]
        made = [one for one in eqn.outvars if one in wanted]
        again = _light(eqn) and (eqn.primitive.name == "convert_element_type" or not sloped & set(made))
        recomputed = not (sloped & set(made) or _light(eqn) or eqn.primitive.name in MOVES)
        if made and recomputed:
            first |= _makers(program.eqns, set(made))
        if made and place in first and not again:
            kept += made
        elif made:
            late.append(eqn)
            wanted |= _variables(eqn.invars)
    kept += [slope] if slope in wanted else []
    return [program.eqns[place] for place in sorted(first)], late[::-1], kept


def _makers(eqns: Sequence[JaxprEqn], wanted: set[Any]) -> set[int]:
    """The places of those that some variables are made by."""
    found = set[int]()
    for place in reversed(range(len(eqns))):
        if wanted & set(eqns[place].outvars):
            found.add(place)
            wanted = wanted | _variables(eqns[place].invars)
    return found


def _variables(atoms: Sequence[Any]) -> set[Any]:
    return {one for one in atoms if not isinstance(one, Literal)}


def _light(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    if name == "jit":
        return all(_light(each) for each in eqn.params["jaxpr"].eqns)
    kernel = any("jaxpr" in own or own == "branches" for own in eqn.params) or "call" in name or "attention" in name
    return not kernel and name not in (*HEAVY, *MOVES)
