"""When in a step an op runs: forward, recompute, backward, update; prefill, decode or sampling of an engine.

JAX writes its transformations into the names of ops: `jvp(...)` is the forward pass of what is differentiated,
`transpose(jvp(...))` the backward pass, `rematted_computation` inside it what is computed again. PyTorch's autograd
engine stands in the chain of operators around a backward kernel.

>>> (
...     phase_of_scope("jit(step)/jvp(Model)/layers/mlp/dot_general"),
...     phase_of_scope("jit(step)/transpose(jvp(Model))/mlp/transpose"),
... )
('forward', 'backward')
>>> phase_of_scope("jit(step)/transpose(jvp(Model))/while/body/checkpoint/rematted_computation/mlp/dot_general")
'recompute'
>>> (
...     phase_of_caller("autograd::engine::evaluate_function: MmBackward0/MmBackward0/aten::mm"),
...     phase_of_caller("aten::linear/aten::addmm"),
... )
('backward', '')
"""

import re
from functools import lru_cache

_DECODE = re.compile(
    r"(?i)(?<![a-z])(decode|generate|generation|autoregressive)(?![a-z]*attention)(_?step|_?loop|_?fn|_?tokens?)?(?![a-z])"
)
_PREFILL = re.compile(r"(?i)(?<![a-z])(prefill|extend|context_phase|prompt)(?![a-z]*attention)")
_SAMPLING = re.compile(r"(?i)(?<![a-z])(sampler|sampling|sample(_\w+)?)(?![a-z])")
_UPDATE = re.compile(
    r"(?i)Optimizer\.step|optimizer[-_]step|(?<![a-z])(optimizer|optax|adamw?|apply_gradients|clip_grad\w*)(?![a-z])"
)
_RECOMPUTE = re.compile(
    r"rematted_computation|CheckpointFunctionBackward|checkpoint_recompute|recompute_fn|(?<![a-z])recompute(?![a-z])"
)
_AUTOGRAD = re.compile(
    r"autograd::engine|Backward\d*\b|_backward\b|CompiledFunctionBackward|(?<![a-z])backward(?![a-z])"
)
_GRADIENT = re.compile(
    r"(?i)post_backward|reduce_grad|grad_?reduce|allreduce_grads|finalize_model_grads|gradient_all_?reduce|DistributedDataParallel.*(hook|reduce)|Reducer|foreach_reduce|reduce_scatter_grad"
)


@lru_cache(maxsize=65536)
def phase_of_scope(scope: str) -> str:
    """The phase that a path of names says; empty where it says none."""
    if _UPDATE.search(scope):
        return "update"
    if "rematted_computation" in scope:
        return "recompute"
    if "transpose(" in scope:
        return "backward"
    if "jvp(" in scope:
        return "forward"
    if _GRADIENT.search(scope):
        return "gradient"
    if _AUTOGRAD.search(scope):
        return "recompute" if _RECOMPUTE.search(scope) else "backward"
    if _SAMPLING.search(scope):
        return "sampling"
    if _PREFILL.search(scope):
        return "prefill"
    return "decode" if _DECODE.search(scope) else ""


@lru_cache(maxsize=65536)
def phase_of_caller(caller: str) -> str:
    """The phase that a chain of PyTorch's operators says."""
    if _UPDATE.search(caller):
        return "update"
    if _GRADIENT.search(caller):
        return "gradient"
    if not _AUTOGRAD.search(caller):
        return ""
    # what a checkpointed region runs again stands under its backward node, without a backward node of its own
    inner = caller.rsplit("CheckpointFunctionBackward", 1)
    return "recompute" if len(inner) == 2 and not _AUTOGRAD.search(inner[1]) else "backward"


def phase_of_module(module: str) -> str:
    """The phase that the name of a program says (`jit_decode_step`)."""
    if _PREFILL.search(module.replace("_", " ")):
        return "prefill"
    if _DECODE.search(module.replace("_", " ")):
        return "decode"
    return "sampling" if _SAMPLING.search(module.replace("_", " ")) else ""
