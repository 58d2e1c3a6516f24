"""The matrix multiplications of a layer as points under a chip's roof: how much each computes per byte on one chip."""

import numpy

from dragonscale.hardware.chip import dtype_bytes
from dragonscale.numbers import product
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_sizes, matmul_dims
from dragonscale.training.evaluation import Job, as_numbers, first
from dragonscale.training.fast import section_sizes
from dragonscale.training.layers import layer_costs
from dragonscale.training.plan import Plan
from dragonscale.training.reading import read_section
from dragonscale.training.rows import Rows


def layer_points(job: Job, plan: Plan) -> list[tuple[str, float, float]]:
    """(name, FLOPs per byte, expected FLOP/s) of the forward products of the model's most common layer under a plan.

    The rate is that of the product's part of the layer, since products that read the same tensor run as one.
    """
    rows = Rows(job, as_numbers([plan]))
    setting = rows.setting(plan, "expected")
    program = job.model.program()
    section = max(program.sections, key=lambda one: one.repeat)
    sizes, wires = section_sizes(rows, setting, section)
    reading = read_section(section, setting.rules)
    work = layer_costs(reading, sizes, wires, setting.timer, setting.profile).work
    points = []
    for kernel in reading.kernels:
        if kernel.function != "matmul" or kernel.phase != "forward":
            continue
        local = local_sizes(kernel.arrays, sizes, Mesh(wires.axes))
        groups = matmul_dims(kernel.arrays)
        flops = 2 * product(local[name] for names in groups[:4] for name in names)
        moved = sum(product(local[dim.name] for dim in array.dims) * dtype_bytes("bf16") for array in kernel.arrays)
        done, taken = work.flops[(kernel.part, "forward")], work.seconds[(kernel.part, "forward")]
        rate = first(numpy.asarray(done) / numpy.asarray(taken))
        points.append((kernel.arrays[-1].name, first(flops) / first(moved), rate))
    return points
