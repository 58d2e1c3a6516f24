"""A question about a sharded einsum, read and answered."""

from dragonscale.app.given import maybe_target, mesh_of, sizes_of, written_target
from dragonscale.app.questions.operations import ShardQuestion
from dragonscale.app.shard.report import ShardReport, shard_report
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.hardware.changes import with_changes


def ask(question: ShardQuestion, listener: Listener) -> ShardReport:
    """Every way to do it, cheapest first."""
    if question.alternatives < 1:
        raise InputError(f"--alternatives is {question.alternatives}; show at least one strategy.")
    on = with_changes(question.on, question.set)
    chip, piece = maybe_target(on, listener)
    mesh = mesh_of(question.mesh, chip, piece)
    if chip is not None and piece is None and chip.kind == "tpu":
        listener.note("No slice given: every mesh axis is taken as a full ring of its own, the book's ideal.")
    shown = question.alternatives, question.backward
    report = shard_report(question.expression, mesh, written_target(on), sizes_of(question.sizes), *shown)
    return report.came_from(mesh, listener.notes)
