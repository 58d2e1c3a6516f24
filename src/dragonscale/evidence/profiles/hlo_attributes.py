"""What follows an instruction's arguments, written from its serialized form as XLA prints it.

Only what says how much an instruction computes, moves and calls is written, with its metadata and the backend's own
configuration; shardings of tuples, result accuracies, statistics and aliasing are left out.
"""

import json
from collections.abc import Callable

from dragonscale.evidence.profiles.hlo_groups import collective_text, sharding_text
from dragonscale.evidence.profiles.hlo_shapes import shape_text
from dragonscale.evidence.profiles.protobuf import Message

_PRECISIONS = ("default", "high", "highest")
_PINNED = (
    "any_f8_any_f8_f32",
    "any_f8_any_f8_f32_fast_accum",
    "f16_f16_f16",
    "f16_f16_f32",
    "bf16_bf16_bf16",
    "bf16_bf16_f32",
)
_SPLIT = (
    "bf16_bf16_f32_x3",
    "bf16_bf16_f32_x6",
    "tf32_tf32_f32",
    "tf32_tf32_f32_x3",
    "f32_f32_f32",
    "f64_f64_f64",
    "bf16_bf16_f32_x9",
)
_ALGORITHMS = dict(enumerate((*_PINNED, *_SPLIT), 1))
"""How a contraction computes, where that is pinned."""
_APPLIED = frozenset(
    (
        "reduce",
        "reduce-window",
        "map",
        "all-reduce",
        "all-reduce-start",
        "reduce-scatter",
        "scatter",
        "sort",
        "call",
        "scan",
    )
)
_APIS = {2: "API_VERSION_STATUS_RETURNING", 3: "API_VERSION_STATUS_RETURNING_UNIFIED", 4: "API_VERSION_TYPED_FFI"}
_NO_DIMENSIONS = frozenset(("iota", "dot", "ragged-dot", "collective-permute", "reshape"))


def attributes(
    op: Message, named: Callable[[int], str], payloads: Callable[[int], bytes], inner: Message | None = None
) -> str:
    """The text of an instruction behind its arguments; `named` gives a computation's name, `payloads` a shared piece.

    Where an asynchronous start wraps one instruction (`inner`), what that one computes and calls is written.
    """
    outer, op = op, inner or op
    opcode = op.word(2)
    parts = [
        *_sizes(op, opcode),
        *_numbers(op, opcode),
        *collective_text(op),
        *_calls(op, opcode, [named(each) for each in op.wholes(38)]),
    ]
    parts += _custom(op) + sharding_text(outer) + _frontend(outer)
    if (metadata := outer.one(7)) is not None and (words := _metadata(metadata)):
        parts.append(f"metadata={{{words}}}")
    if config := _config(outer, payloads):
        parts.append(f"backend_config={config}")
    return "".join(f", {part}" for part in parts).removeprefix(",")


def _braced(name: str, values: list[int]) -> str:
    return f"{name}={{{','.join(map(str, values))}}}"


def _sizes(op: Message, opcode: str) -> list[str]:
    """Dimensions, slices, windows and the other sizes."""
    parts: list[str] = []
    if (op.has(14) and opcode not in _NO_DIMENSIONS) or opcode == "broadcast":
        parts.append(_braced("dimensions", op.wholes(14)))
    if opcode == "iota":
        parts.append(f"iota_dimension={(op.wholes(14) or [0])[0]}")
    if opcode == "get-tuple-element":
        parts.append(f"index={op.whole(13)}")
    if op.has(17):
        parts.append(f"slice={{{', '.join(_slice(each) for each in op.all(17))}}}")
    if op.has(20):
        parts.append(_braced("dynamic_slice_sizes", op.wholes(20)))
    if (padding := op.one(21)) is not None:
        parts.append(f"padding={'x'.join(_padding(each) for each in padding.all(1))}")
    if opcode == "compare":
        parts.append(f"direction={op.word(63)}")
        parts += [f"type={op.word(72)}"] if op.word(72) == "TOTALORDER" else []
    if op.whole(60):
        parts.append("is_stable=true")
    if op.has(32):
        parts += [
            f"fft_type={('FFT', 'IFFT', 'RFFT', 'IRFFT')[op.whole(31) % 4]}",
            _braced("fft_length", op.wholes(32)),
        ]
    return parts


def _slice(part: Message) -> str:
    stride = f":{part.whole(3)}" if part.whole(3) not in (0, 1) else ""
    return f"[{part.whole(1)}:{part.whole(2)}{stride}]"


def _padding(part: Message) -> str:
    inner = f"_{part.whole(3)}" if part.whole(3) else ""
    return f"{part.whole(1)}_{part.whole(2)}{inner}"


def _numbers(op: Message, opcode: str) -> list[str]:
    """Which dims a contraction, convolution, gather or scatter works on."""
    parts: list[str] = []
    ragged = op.one(90)
    if (dot := ragged.one(1) if ragged else op.one(30)) is not None:
        names = ((3, "lhs_batch_dims"), (1, "lhs_contracting_dims"), (4, "rhs_batch_dims"), (2, "rhs_contracting_dims"))
        parts += [_braced(name, dot.wholes(key)) for key, name in names if "contracting" in name or dot.has(key)]
    if ragged is not None:
        parts += [
            _braced(name, ragged.wholes(key))
            for key, name in ((2, "lhs_ragged_dims"), (3, "rhs_group_dims"))
            if ragged.has(key)
        ]
    if (window := op.one(15)) is not None and (words := _window(window)):
        parts.append(f"window={{{words}}}")
    if (labels := op.one(16)) is not None:
        parts.append(f"dim_labels={_labels(labels)}")
        parts += [
            f"{name}={op.whole(key)}"
            for key, name in ((50, "feature_group_count"), (58, "batch_group_count"))
            if op.whole(key) > 1
        ]
    parts += _indexed(op)
    precision = op.one(51)
    if precision is not None and opcode not in ("custom-call",):
        found = [_PRECISIONS[value % 3] for value in precision.wholes(1)]
        parts += [f"operand_precision={{{','.join(found)}}}"] if any(each != "default" for each in found) else []
        parts += [f"algorithm=dot_{_ALGORITHMS[precision.whole(2)]}"] if precision.whole(2) in _ALGORITHMS else []
    return parts


def _indexed(op: Message) -> list[str]:
    parts: list[str] = []
    gather, scatter = op.one(33), op.one(48)
    if gather is not None:
        names = {
            1: "offset_dims",
            2: "collapsed_slice_dims",
            3: "start_index_map",
            5: "operand_batching_dims",
            6: "start_indices_batching_dims",
        }
        parts += [_braced(name, gather.wholes(key)) for key, name in names.items() if key <= 3 or gather.has(key)]
        parts += [f"index_vector_dim={gather.whole(4)}", _braced("slice_sizes", op.wholes(34))]
    if scatter is not None:
        names = {
            1: "update_window_dims",
            2: "inserted_window_dims",
            3: "scatter_dims_to_operand_dims",
            5: "input_batching_dims",
        }
        names[6] = "scatter_indices_batching_dims"
        parts += [_braced(name, scatter.wholes(key)) for key, name in names.items() if key <= 3 or scatter.has(key)]
        parts += [f"index_vector_dim={scatter.whole(4)}"]
    parts += ["indices_are_sorted=true"] if op.whole(67) else []
    return [*parts, "unique_indices=true"] if op.whole(69) else parts


def _window(window: Message) -> str:
    """`size=3x3 stride=2x2 pad=1_1x1_1`, with what is not the default."""
    dims = window.all(1)
    words = [f"size={'x'.join(str(each.whole(1)) for each in dims)}"] if dims else []
    for key, name in ((2, "stride"), (5, "rhs_dilate"), (6, "lhs_dilate")):
        values = [each.whole(key) or 1 for each in dims]
        words += [f"{name}={'x'.join(map(str, values))}"] if any(value != 1 for value in values) else []
    pads = [f"{each.whole(3)}_{each.whole(4)}" for each in dims]
    words[1 + any(word.startswith("stride") for word in words) :] = [
        *([f"pad={'x'.join(pads)}"] if any(pad != "0_0" for pad in pads) else []),
        *sorted((word for word in words if "dilate" in word), key=lambda word: word.startswith("rhs")),
    ]
    if any(each.whole(7) for each in dims):
        words.append(f"rhs_reversal={'x'.join(str(each.whole(7)) for each in dims)}")
    return " ".join(words)


def _labels(numbers: Message) -> str:
    """`b01f_01io->b01f`: what each dim of input, kernel and result is."""

    def side(letters: dict[str, int], spatial: list[int]) -> str:
        places = {place: letter for letter, place in letters.items()} | {
            place: str(count) for count, place in enumerate(spatial)
        }
        return "".join(places[place] for place in sorted(places))

    first = side({"b": numbers.whole(7), "f": numbers.whole(8)}, numbers.wholes(11))
    kernel = side({"i": numbers.whole(3), "o": numbers.whole(4)}, numbers.wholes(6))
    result = side({"b": numbers.whole(9), "f": numbers.whole(10)}, numbers.wholes(12))
    return f"{first}_{kernel}->{result}"


def _calls(op: Message, opcode: str, called: list[str]) -> list[str]:
    """The computations that it runs, in their roles."""
    parts = [f"kind={op.word(11)}"] if op.has(11) else []
    if not called:
        return parts
    if opcode == "while" and len(called) == 2:
        return [f"condition=%{called[1]}", f"body=%{called[0]}"]
    if opcode == "conditional":
        return [f"branch_computations={{{', '.join(f'%{each}' for each in called)}}}"]
    if opcode == "select-and-scatter" and len(called) == 2:
        return [f"select=%{called[0]}", f"scatter=%{called[1]}"]
    if opcode in _APPLIED:
        return [*parts, f"to_apply=%{called[0]}"]
    if opcode == "custom-call":
        return [*parts, f"called_computations={{{', '.join(f'%{each}' for each in called)}}}"]
    if opcode in ("async-update", "async-done"):
        return parts
    return [*parts, f"calls=%{called[0]}"]


def _custom(op: Message) -> list[str]:
    parts = [f'custom_call_target="{op.word(28)}"'] if op.word(28) else []
    if op.has(57):
        parts.append(f"operand_layout_constraints={{{', '.join(shape_text(each) for each in op.all(57))}}}")
    parts += ["custom_call_has_side_effect=true"] if op.whole(65) else []
    parts += [f"api_version={_APIS[op.whole(77)]}"] if op.whole(77) in _APIS else []
    parts += [f'async_execution_thread="{op.word(79)}"'] if op.word(79) not in ("", "main") else []
    return [*parts, f"cross_program_prefetch_index={op.whole(80)}"] if op.has(80) else parts


def _frontend(op: Message) -> list[str]:
    found = op.one(68)
    pairs = [(each.word(1), each.word(2)) for each in found.all(1)] if found else []
    # Values that are JSON themselves are printed without quotes.
    told = (f"{key}={value}" if value.startswith("{") else f"{key}={json.dumps(value)}" for key, value in sorted(pairs))
    return [f"frontend_attributes={{{','.join(told)}}}"] if pairs else []


def _quoted(value: str) -> str:
    """A text in quotes, with what XLA escapes escaped."""
    return json.dumps(value, ensure_ascii=False).replace("'", "\\'")


def _metadata(metadata: Message) -> str:
    """The names first, then places, as XLA prints them."""
    parts: list[str] = []
    for key, name in ((1, "op_type"), (2, "op_name"), (3, "source_file")):
        parts += [f"{name}={_quoted(metadata.word(key))}"] if metadata.word(key) else []
    parts += [f"source_line={metadata.whole(4)}"] if metadata.whole(4) else []
    for key, name in ((12, "deduplicated_name"), (16, "scheduling_name")):
        parts += [f"{name}={_quoted(metadata.word(key))}"] if metadata.word(key) else []
    parts += [f"stack_frame_id={metadata.whole(15)}"] if metadata.whole(15) else []
    return " ".join(parts)


def _config(op: Message, payloads: Callable[[int], bytes]) -> str:
    """What the backend wrote for itself, where it is text: JSON as it is, other text in quotes."""
    raw = op.raw(43)
    payload = op.one(99)
    if not raw and payload is not None:
        raw = payload.raw(1) or (payloads(payload.whole(2)) if payload.has(2) else b"")
    try:
        told = raw.decode()
    except UnicodeDecodeError:
        return ""
    if told.startswith("{"):
        return told
    return json.dumps(told) if told.isprintable() and told else ""
