"""`dscale explain …`: the formula behind a number, with the numbers put in and the crossover solved."""

from typing import Annotated

from cyclopts import App, Parameter

from dragonscale.cli.collective import Filled, InNetwork, OneWay, Picks, read_axes
from dragonscale.cli.flags import Json, MeshText, On, Sizes, read_sizes
from dragonscale.cli.show import emit_json, note, say


def build() -> App:
    """The explain command and what it explains."""
    app = App(name="explain", help="The formula behind any number, with the numbers put in, and the crossover solved.")
    every = explain_roofline, explain_collective, explain_shard, explain_model, explain_train, explain_serve
    for command in every:
        app.command(command, name=command.__name__.removeprefix("explain_"))
    return app


def explain_roofline(
    expression: str,
    /,
    *,
    on: On,
    sizes: Sizes = "",
    memory: Annotated[str, Parameter(help="hbm, vmem, pcie …")] = "hbm",
    json: Json = False,
) -> int:
    """Why an operation takes as long as it does."""
    from dragonscale.hardware import parse_target
    from dragonscale.reports.explain import physics as explain

    return _show(explain.explain_roofline(expression, parse_target(on)[0], read_sizes(sizes), memory), json)


def explain_collective(
    kind: str,
    size: str | None = None,
    /,
    *,
    on: On,
    axis: Annotated[str, Parameter(name="--axis", help="Mesh axes, such as X.")] = "",
    mesh: MeshText = "",
    one_way: OneWay = False,
    in_network: InNetwork = False,
    filled: Filled = 1.0,
    picks: Picks = None,
    json: Json = False,
) -> int:
    """Why a collective takes as long as it does."""
    from dragonscale.hardware import parse_target
    from dragonscale.reports.collective import collective_mesh, find_kind, read_options
    from dragonscale.reports.explain import physics as explain
    from dragonscale.sharding.mesh import parse_mesh
    from dragonscale.units import parse

    chip, piece = parse_target(on)
    layout = collective_mesh(chip, piece, parse_mesh(mesh))
    volume = None if size is None else parse(size, "bytes", "the size")
    axes = read_axes(axis, layout.axes)
    options = read_options(layout.size(*axes), one_way, in_network, filled, picks)
    return _show(explain.explain_collective(find_kind(kind), volume, layout, axes, options), json)


def explain_shard(
    expression: str, /, *, mesh: MeshText = "", on: On = "", sizes: Sizes = "", json: Json = False
) -> int:
    """Which bytes a sharded einsum moves, as formulas."""
    from dragonscale.hardware import parse_target
    from dragonscale.reports.explain import physics as explain
    from dragonscale.sharding.mesh import make_mesh, natural_mesh, parse_mesh

    chip, piece = parse_target(on) if on else (None, None)
    axes = parse_mesh(mesh)
    layout = natural_mesh(piece) if piece is not None and not axes else make_mesh(dict(axes), chip, piece)
    return _show(explain.explain_shard(expression, layout, read_sizes(sizes)), json)


def explain_model(
    name: str, /, *, seq: Annotated[str, Parameter(help="Sequence length.")] = "8192", json: Json = False
) -> int:
    """Where a model's parameters and FLOPs come from."""
    from dragonscale.models import load_model
    from dragonscale.reports.explain import physics as explain
    from dragonscale.units import parse_length

    length, said = parse_length(seq, "--seq")
    if said:
        note(said)
    return _show(explain.explain_model(load_model(name), length), json)


def explain_train(
    plan: Annotated[
        str, Parameter(help="A plan (fsdp=64,tensor=8,remat=block, or a .toml), or a scheme (fsdp, dp+tp, fsdp+ep+tp).")
    ],
    /,
    *,
    model: Annotated[str, Parameter(help="A preset (llama3-70b), a config.json, or a TOML file.")],
    on: On,
    batch: Annotated[str, Parameter(help="Tokens of a step (4M), or sequences (512seq).")] = "4Mi",
    seq: Annotated[str, Parameter(help="Tokens of a sequence.")] = "8192",
    stack: Annotated[
        str,
        Parameter(help="The software: megatron, torchtitan, maxtext, dragonscale, generic …; auto: what people run."),
    ] = "auto",
    dtype: Annotated[str, Parameter(help="What matrices are multiplied in: bf16, fp8, int8 …")] = "bf16",
    wire: Annotated[str, Parameter(help="Format of activations between chips; the stack's without it (bf16).")] = "",
    line: Annotated[
        str,
        Parameter(help="One line, term, tensor or part of memory: U+G, 'mlp matmuls', tensor, all_gather, optimizer …"),
    ] = "",
    solve: Annotated[
        str, Parameter(help="Solve crossovers for batch, seq, chips or a mesh axis; several with commas.")
    ] = "",
    json: Json = False,
) -> int:
    """Where a step's time, bytes, FLOPs and memory come from, and where it becomes bound by the network."""
    from dragonscale.reports.explain.train import explain_train as explained
    from dragonscale.reports.train.question import explained_job

    job, split = explained_job(plan, model, on, batch, seq, stack, dtype)
    return _show(explained(job, split, line, solve, wire), json)


def explain_serve(
    model: Annotated[str, Parameter(help="A preset (llama3-70b), a config.json, or a TOML file.")],
    /,
    *,
    on: Annotated[str, Parameter(name="--on", help="A chip (h100) or a slice (v5e:4x4).")] = "",
    prompt: Annotated[str, Parameter(help="Tokens of a prompt.")] = "2048",
    output: Annotated[str, Parameter(help="Output tokens.")] = "512",
    ttft: Annotated[str, Parameter(help="The time to the first token that must be met.")] = "",
    tpot: Annotated[str, Parameter(help="The time per output token that must be met.")] = "",
    engine: Annotated[
        str,
        Parameter(
            help="The software: vllm, sglang, sglang-ep, trtllm, vllm-tpu, generic …; auto: what people run there."
        ),
    ] = "",
    dtype: Annotated[str, Parameter(help="Format of weights, matmuls and cache.")] = "",
    weights: Annotated[str, Parameter(help="Format of stored weights.")] = "",
    compute: Annotated[str, Parameter(help="Format of matmuls.")] = "",
    kv: Annotated[str, Parameter(help="Format of the cache.")] = "",
    plan: Annotated[str, Parameter(help="The plan (tensor=8, or a .toml); the best one without it.")] = "",
    batch: Annotated[str, Parameter(help="Sequences that decode at once; the best number without it.")] = "",
    line: Annotated[
        str, Parameter(help="One line, term or tensor of the iteration: U+G, mlp, tensor, all_reduce, 'KV cache', Wq …")
    ] = "",
    solve: Annotated[str, Parameter(help="Solve crossovers for batch, context, prompt or a mesh axis (tensor).")] = "",
    json: Json = False,
) -> int:
    """Where an iteration's time and memory, the time per token and the limits of serving come from."""
    from dragonscale.reports.explain.serve import explain_serve as explained
    from dragonscale.reports.serve.question import ServeQuestion, read_question

    asked = ServeQuestion(
        model=model, on=on, prompt=prompt, output=output, ttft=ttft, tpot=tpot, engine=engine, dtype=dtype,
        weights=weights, compute=compute, kv=kv, plan=plan, batch=batch,
    )  # fmt: skip
    return _show(explained(read_question(asked), line, solve), json)


def _show(explanation, json: bool) -> int:
    lines = [explanation.subject, ""]
    for line in explanation.lines:
        lines += [f"{line.name} = {line.value}", f"    = {line.formula}"]
        lines += [f"    = {line.numbers}"] if line.numbers != line.formula else []
    if explanation.crossovers:
        lines += ["", "crossovers", *(f"  {text}" for text in explanation.crossovers)]
    emit_json(explanation) if json else say("\n".join([*lines, "", *explanation.notes]))
    return 0
