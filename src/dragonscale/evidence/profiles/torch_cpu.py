"""A profile of PyTorch without an accelerator: the CPU is the device, the operators that do the work are its ops.

An operator of PyTorch calls others: `aten::linear` is `aten::addmm` and little else, but `aten::add` calls
`aten::empty` for its output and then works itself. So an operator counts as the one at work where those inside of it
take less than half of its time; otherwise they do. What only leads from one to the other (the engine of autograd, a
compiled region) is never an op itself unless nothing lies in it.
"""

import numpy as np

from dragonscale.evidence.profiles.host_spans import HostSpans, SpanKind
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import OpText, Recorder


def record_cpu(
    recorder: Recorder, spans: HostSpans, shapes: list[tuple[tuple[str, ...], bool]], steps: np.ndarray
) -> None:
    """The operators at work as ops of a device that is the CPU, one track for each thread."""
    device = recorder.device("CPU", "cpu")
    tracks: dict[int, int] = {}
    forward = spans.forward_paths()
    for span in working(spans).tolist():
        thread = int(spans.thread[span])
        if thread not in tracks:
            tracks[thread] = recorder.track(device, f"thread {len(tracks)}", "ops")
        text = _op(spans, span, shapes, forward)
        start = int(spans.start[span])
        recorder.event(
            tracks[thread], recorder.op(text), start, int(spans.end[span]) - start, launched=start, run=int(steps[span])
        )


def working(spans: HostSpans) -> np.ndarray:
    """The operators at work: no two of them lie inside of each other."""
    operators = np.flatnonzero(spans.kind == SpanKind.OPERATOR)
    inside = np.zeros(len(spans), np.int64)
    count = np.zeros(len(spans), np.int64)
    for span in operators.tolist():
        above = _operator_above(spans, int(spans.parent[span]))
        if above >= 0:
            inside[above] += spans.end[span] - spans.start[span]
            count[above] += 1
    leads = np.array([_leads(name) for name in spans.names.texts] or [False])[spans.name]
    alone = (count == 0) | ((2 * inside < spans.end - spans.start) & ~leads)
    chosen = np.zeros(len(spans), bool)
    covered = np.zeros(len(spans), bool)
    for span in operators.tolist():  # parents come before what lies in them
        above = _operator_above(spans, int(spans.parent[span]))
        covered[span] = above >= 0 and (covered[above] or chosen[above])
        chosen[span] = not covered[span] and alone[span]
    return np.flatnonzero(chosen)


def _leads(name: str) -> bool:
    """Whether an operator only leads to others, or is made of them."""
    words = table("torch.toml")
    node = "::" not in name and name.rstrip("0123456789").endswith("Backward")
    return name.startswith(tuple(words["leads"])) or name in words["only_calls"] or node


def _operator_above(spans: HostSpans, span: int) -> int:
    while span >= 0 and spans.kind[span] != SpanKind.OPERATOR:
        span = int(spans.parent[span])
    return span


def _op(spans: HostSpans, span: int, shapes: list[tuple[tuple[str, ...], bool]], forward: dict[int, int]) -> OpText:
    path, name = int(spans.path[span]), spans.names.texts[int(spans.name[span])]
    before, above = -1, span
    while above >= 0 and before < 0:
        if spans.backward[above]:
            before = forward.get(int(spans.sequence[above]), -1)
        above = int(spans.parent[above])
    shape = int(spans.shapes[span])
    read, causal = shapes[shape] if shape >= 0 else ((), False)
    return OpText(name, category="cpu_op", **spans.words(path, before), shapes=read, causal=causal)
