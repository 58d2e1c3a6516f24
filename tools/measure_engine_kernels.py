"""Time the engine's GPU kernels, cut in many ways, beside what XLA and cuDNN have: LLaMA-3-8B's shapes.

Runs where JAX sees a GPU: `python tools/measure_engine_kernels.py OUT [PART …]` with parts `check` (are they right?),
`rates`, `decode`, `prompts`, `matmul1`, `matmul64`. Every way runs over several caches or weights in turn, so that
nothing is found in the last-level cache; times are those of the kernels in a profile (all kernels of a call added up),
the smallest of three calls. `--small` runs everything on the CPU, to see that it runs.
"""

import glob
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.runtime.attention import Reach, Scoring
from dragonscale.runtime.quantized import quantized
from dragonscale.runtime.serve.gpu_attention import PageReading, Tile, decode_rows, prompt_rows
from dragonscale.runtime.serve.gpu_matmul import MatmulTile, few_tokens, skinny_matmul
from dragonscale.runtime.serve.paged_attention import PagedKeys, StepRows, attend_chunks, attend_decodes
from dragonscale.runtime.serve.steps import StepShape

SMALL = "--small" in sys.argv
PAGE = 16
BEGAN = time.perf_counter()


@dataclass(frozen=True)
class Way:
    """One way to compute a case, over several copies of its arguments."""

    case: str
    way: str
    function: Callable[..., Any]
    copies: list[Any]
    bytes: float
    flops: float = 0.0


def note(*words: object) -> None:
    print(f"{time.perf_counter() - BEGAN:6.1f}s", *words, flush=True)


def many(function: Callable[..., Any], name: str) -> Any:
    """A program that calls the function on each copy."""

    def run(copies: list[Any]) -> list[Any]:
        return [function(*copy) for copy in copies]

    run.__name__ = name
    return jax.jit(run)


def normal(*shape: int, dtype: Any = jnp.bfloat16, seed: int = 0) -> jax.Array:
    return jax.jit(lambda: (jax.random.normal(jax.random.key(seed), shape, jnp.float32) * 0.1).astype(dtype))()


def rates() -> Iterator[Way]:
    side = 256 if SMALL else 8192
    a, b = normal(side, side), normal(side, side, seed=1)
    yield Way("matmul 8192", "XLA", lambda a, b: a @ b, [(a, b)], 0, 2 * side**3)
    x = normal(side * side * 8)
    yield Way("copy", "XLA", lambda x: x + 1, [(x,)], 2 * x.nbytes)
    yield Way("read", "XLA", lambda x: x.sum(), [(x,)], x.nbytes)


def decode() -> Iterator[Way]:
    n, k, h, length = (8, 2, 32, 48) if SMALL else (32, 8, 128, 1024)
    how = Scoring(Reach(), h**-0.5)
    for rows in (1, 64):
        pages = length // PAGE * rows + 1
        random = numpy.random.default_rng(0)
        tables = jnp.asarray(1 + random.permutation(pages - 1).reshape(rows, -1), jnp.int32)
        lengths = jnp.full((rows,), length, jnp.int32)
        count = 24 if rows == 1 else 2
        query = normal(rows, n, h)
        copies = [
            (query, PagedKeys(*(normal(pages * PAGE, k, h, seed=i + j) for j in (0, 50))), tables, lengths)
            for i in range(count)
        ]
        size = 2 * rows * length * k * h * 2
        grid = itertools.product((16, 32, 64, 128), (4, 2, 8), (2, 3, 4), (16, 8, 32) if rows == 1 else (1, 2))
        for keys, warps, stages, splits in grid:
            if stages * keys > 256 or keys * stages < 64 or (warps == 8 and keys < 64) or (warps == 2 and keys > 64):
                continue
            if rows == 1 and (splits * keys > 1024 or stages > 3):
                continue
            tile = Tile(16, keys, splits, warps, stages)
            call = partial(decode_rows, reading=PageReading(PAGE, how, h, tile, SMALL))
            yield Way(f"decode {rows}", str(tile), call, copies, size)
        plain = [
            (
                query[:, None],
                *(each[PAGE:].reshape(rows, length, k, h) for each in (c.keys, c.values) if each is not None),
                lengths,
            )
            for _, c, _, _ in copies
        ]

        def cudnn(q: Any, keys: Any, values: Any, lengths: Any) -> Any:
            own = None if SMALL else "cudnn"
            return jax.nn.dot_product_attention(q, keys, values, key_value_seq_lengths=lengths, implementation=own)

        yield Way(f"decode {rows}", "cuDNN, contiguous", cudnn, plain, size)


def prompts() -> Iterator[Way]:
    n, k, h = (8, 2, 32) if SMALL else (32, 8, 128)
    how = Scoring(Reach(), h**-0.5)
    for tokens, before in ((1024, 0), (4096, 0), (1024, 3072)):
        tokens, before = (64, before // 64) if SMALL else (tokens, before)
        length = tokens + before
        cache = PagedKeys(*(normal(length + PAGE, k, h, seed=j) for j in (0, 1)))
        tables = 1 + jnp.arange(length // PAGE, dtype=jnp.int32)[None]
        starts = jnp.array([0, tokens], jnp.int32)
        query = normal(tokens, n, h)
        flops = 4 * n * h * (tokens * before + tokens * tokens / 2)
        for rows, keys, warps, stages in (
            (64, 64, 4, 2),
            (64, 64, 4, 3),
            (128, 64, 4, 2),
            (128, 64, 8, 2),
            (128, 64, 8, 3),
            (128, 128, 8, 2),
            (128, 128, 8, 3),
            (128, 32, 8, 3),
        ):
            tile = Tile(rows, keys, 1, warps, stages)
            call = partial(prompt_rows, reading=PageReading(PAGE, how, h, tile, SMALL))
            yield Way(
                f"prompts {tokens}+{before}",
                str(tile),
                call,
                [(query, cache, tables, jnp.array([length], jnp.int32), starts)],
                0,
                flops,
            )
        if not before:
            plain = [(query[None], *(each[PAGE:][None] for each in (cache.keys, cache.values) if each is not None))]

            def cudnn(q: Any, keys: Any, values: Any) -> Any:
                return jax.nn.dot_product_attention(
                    q, keys, values, is_causal=True, implementation=None if SMALL else "cudnn"
                )

            yield Way(f"prompts {tokens}+{before}", "cuDNN, contiguous", cudnn, plain, 0, flops)


def matmuls(m: int) -> Iterator[Way]:
    shapes = {
        "qkv": (4096, 6144, 6),
        "o": (4096, 4096, 8),
        "down": (14336, 4096, 3),
        "up": (4096, 28672, 2),
        "head": (4096, 128256, 1),
    }
    grid = [(64, 128, 4, 4), (128, 64, 4, 4), (128, 64, 8, 4), (32, 128, 4, 4), (64, 256, 4, 3), (64, 128, 8, 4)]
    for name, (k, n, count) in shapes.items():
        k, n = (k // 16, n // 16) if SMALL else (k, n)
        x = normal(m, k)
        copies = [(x, normal(k, n, seed=i)) for i in range(count)]
        yield Way(f"{name} {m}", "XLA", lambda x, w: x @ w, copies, 2 * k * n)
        for (columns, rows, warps, stages), splits in itertools.product(grid, (1,) if n > 20000 else (1, 2, 4, 8)):
            programs = -(-n // columns) * splits
            if (not SMALL and (programs < 120 or (programs > 800 and splits > 1))) or k % (splits * rows):
                continue
            tile = MatmulTile(columns, rows, splits, warps, stages)
            call = lambda x, w, tile=tile: skinny_matmul(x, w, tile, interpret=SMALL).sum(0)  # noqa: E731
            yield Way(f"{name} {m}", str(tile), call, copies, 2 * k * n)


def check() -> None:
    """The kernels as the engine cuts them, against attention over gathered pages: the largest difference of outputs in
    bf16."""
    cases = {
        "llama": (32, 8, 128, 128, Scoring(Reach(), 128**-0.5), {}),
        "gemma": (16, 8, 256, 256, Scoring(Reach(window=100), 0.06, 50.0), {}),
        "gpt-oss": (64, 8, 64, 64, Scoring(Reach(window=128), 0.125, sinks=normal(64, dtype=jnp.float32)), {}),
        "llama4": (40, 8, 128, 128, Scoring(Reach(chunk=128), 128**-0.5), {}),
        "latent": (128, 1, 576, 512, Scoring(Reach(), 0.07), {"latent": True}),
        "latent int8": (128, 1, 576, 512, Scoring(Reach(), 0.07), {"latent": True, "int8": True}),
        "int8": (32, 8, 128, 128, Scoring(Reach(), 128**-0.5), {"int8": True}),
        "odd": (28, 4, 96, 96, Scoring(Reach(), 0.1), {}),
    }
    lengths, starts, width = [300, 0, 17, 512], [0, 100, 100, 117, 317], 32
    tables = jnp.asarray(1 + numpy.random.default_rng(0).permutation(4 * width).reshape(4, width), jnp.int32)
    sizes, none = jnp.asarray(lengths, jnp.int32), jnp.zeros(0, jnp.int32)
    rest = dict.fromkeys(("tokens", "from_last", "writes", "slots", "reads"), none)
    only = next((each[7:].split(",") for each in sys.argv if each.startswith("--only=")), list(cases))
    for name, (n, k, h, size, how, kind) in cases.items():
        if name not in only:
            continue
        cache = PagedKeys(*(10 * normal((1 + 4 * width) * PAGE, k, h, seed=i) for i in (1, 2)))
        if "int8" in kind:
            (keys, one), (values, other) = (
                quantized(each, (-1,), jnp.bfloat16) for each in (cache.keys, cache.values) if each is not None
            )
            cache = PagedKeys(keys, values, one[..., 0], other[..., 0])
        if "latent" in kind:
            cache = PagedKeys(cache.keys, key_scale=cache.key_scale)
        for queries in (1, 3):
            shape = StepShape(4, queries)
            query = 10 * normal(4 * queries, n, h, seed=3)
            at = (sizes[:, None] - queries + jnp.arange(queries)).reshape(-1)
            rows = StepRows(**rest, positions=at, tables=tables, lengths=sizes, starts=none, shape=shape, page=PAGE)
            run = jax.jit(
                lambda q, c, r, how=how, size=size: decode_rows(
                    q, c, r.tables, r.lengths, PageReading(PAGE, how, size, interpret=SMALL), r.shape.queries
                )
            )
            real = jnp.repeat(sizes > 0, queries)[:, None, None]
            wanted = jax.jit(lambda q, c, r, how=how, size=size: attend_decodes(q, c, r, how, size))(query, cache, rows)
            off = jnp.where(real, run(query, cache, rows) - wanted, 0).astype(jnp.float32)
            note(
                f"{name}: decode of {queries}: differs by {float(jnp.abs(off).max()):.4f} of "
                f"{float(jnp.abs(jnp.where(real, wanted, 0)).max()):.2f}"
            )
        query = 10 * normal(330, n, h, seed=3)
        begins = jnp.asarray(starts, jnp.int32)
        rows = StepRows(
            **rest,
            positions=none,
            tables=tables,
            lengths=sizes,
            starts=begins,
            shape=StepShape(prompts=4, tokens=330),
            page=PAGE,
        )
        run = jax.jit(
            lambda q, c, r, how=how, size=size: prompt_rows(
                q, c, r.tables, r.lengths, r.starts, PageReading(PAGE, how, size, interpret=SMALL)
            )
        )
        wanted = jax.jit(lambda q, c, r, how=how, size=size: attend_chunks(q, c, r, how, size))(query, cache, rows)
        off = (run(query, cache, rows) - wanted)[: starts[-1]].astype(jnp.float32)
        note(
            f"{name}: prompts: differs by {float(jnp.abs(off).max()):.4f} of "
            f"{float(jnp.abs(wanted[: starts[-1]]).max()):.2f}"
        )
    for m, k, n in () if SMALL else ((1, 4096, 6144), (3, 4096, 4096), (64, 14336, 4096), (33, 4096, 28672)):
        x, w = 10 * normal(m, k), normal(k, n, seed=1)
        narrow = jnp.clip(jnp.round(300 * w), -127, 127).astype(jnp.int8)
        off = few_tokens("btd,dm->btm", x[None], narrow) - (x[None] @ narrow.astype(x.dtype))
        note(
            f"int8 matmul {m}: differs by {float(jnp.abs(off).max()):.4f} of "
            f"{float(jnp.abs(x @ narrow.astype(x.dtype)).max()):.2f}"
        )
        found, wanted = few_tokens("btd,dm->btm", x[None], w), (x[None] @ w)
        note(
            f"matmul {m}: differs by {float(jnp.abs((found if found is not None else 0) - wanted).max()):.4f} of "
            f"{float(jnp.abs(wanted).max()):.2f}"
        )


def int8() -> Iterator[Way]:
    """Weights and caches in int8."""
    shapes = {"qkv": (4096, 6144, 6), "o": (4096, 4096, 8), "down": (14336, 4096, 4), "up": (4096, 28672, 2)}
    tiles = [(128, 128, 4, 3), (128, 128, 4, 4), (256, 64, 8, 4), (256, 128, 8, 3), (128, 256, 4, 2), (128, 64, 4, 4)]
    for m, (name, (k, n, count)) in itertools.product((1, 64), shapes.items()):
        x = normal(m, k)
        copies = [(x, (100 * normal(k, n, seed=i)).astype(jnp.int8)) for i in range(count)]
        yield Way(f"int8 {name} {m}", "XLA", lambda x, w: x @ w.astype(x.dtype), copies, k * n)
        for (columns, rows, warps, stages), splits in itertools.product(tiles, (1, 2, 4)):
            if 110 <= n // columns * splits <= 500:
                tile = MatmulTile(columns, rows, splits, warps, stages)
                call = lambda x, w, tile=tile: skinny_matmul(x, w, tile, interpret=SMALL).sum(0)  # noqa: E731
                yield Way(f"int8 {name} {m}", str(tile), call, copies, k * n)
    n, k, h, length, rows = 32, 8, 128, 1024, 64
    how, pages = Scoring(Reach(), h**-0.5), length // PAGE * rows + 1
    tables = jnp.asarray(1 + numpy.random.default_rng(0).permutation(pages - 1).reshape(rows, -1), jnp.int32)
    whole = [(100 * normal(pages * PAGE, k, h, seed=i)).astype(jnp.int8) for i in range(6)]
    scales = normal(pages * PAGE, k)
    lengths = jnp.full((rows,), length, jnp.int32)
    copies = [
        (normal(rows, n, h), PagedKeys(whole[i], whole[i + 1], scales, scales), tables, lengths) for i in (0, 2, 4)
    ]
    for keys, warps, stages, splits in itertools.product((64, 128), (2, 4), (2, 3, 4), (1, 2)):
        if keys * stages <= 400 and keys // warps >= 16:
            tile = Tile(16, keys, splits, warps, stages)
            call = partial(decode_rows, reading=PageReading(PAGE, how, h, tile, SMALL))
            yield Way("int8 decode 64", str(tile), call, copies, 2 * rows * length * k * (h + 2))


PARTS: dict[str, Callable[[], Iterator[Way]]] = {
    "rates": rates,
    "decode": decode,
    "prompts": prompts,
    "int8": int8,
    "matmul1": lambda: matmuls(1),
    "matmul64": lambda: matmuls(64),
}


def kernel_seconds(folder: str) -> dict[str, list[float]]:
    """Of a profile: for each program (by the module's name) the seconds of its kernels."""
    found: dict[str, list[float]] = {}
    path = max(glob.glob(f"{folder}/**/*.xplane.pb", recursive=True))
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        if "/device:GPU" not in plane.name:
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                stats = dict(event.stats)
                if module := stats.get("hlo_module"):
                    found.setdefault(str(module).removeprefix("jit_"), []).append(event.duration_ns / 1e9)
    return found


def timed(ways: list[Way], folder: Path) -> Iterator[dict[str, Any]]:
    programs: dict[str, Any] = {}

    def compiled(item: tuple[int, Way]) -> tuple[str, Any]:
        place, way = item
        try:
            return f"way{place}", many(way.function, f"way{place}").lower(way.copies).compile()
        except Exception as error:
            note(way.case, way.way, "does not compile:", str(error)[:200])
            return f"way{place}", None

    with ThreadPoolExecutor(16) as pool:
        programs = dict(pool.map(compiled, enumerate(ways)))
    note("compiled", len(programs))
    wall: dict[str, float] = {}
    for place, way in enumerate(ways):
        run = programs[f"way{place}"]
        if run is None:
            continue
        try:
            jax.block_until_ready(run(way.copies))
            start = time.perf_counter()
            jax.block_until_ready([run(way.copies)[0] for _ in range(10)])
            wall[f"way{place}"] = (time.perf_counter() - start) / 10 / len(way.copies)
        except Exception as error:
            note(way.case, way.way, "fails:", str(error)[:200])
    note("timed")
    inside: dict[str, float] = {}
    try:
        with jax.profiler.trace(str(folder)):
            for name in wall:
                for _ in range(3):
                    jax.block_until_ready(programs[name](ways[int(name[3:])].copies))
        for name, taken in kernel_seconds(str(folder)).items():
            if name in wall:
                inside[name] = sum(taken) / 3 / len(ways[int(name[3:])].copies)
    except Exception as error:
        note("no profile:", str(error)[:300])
    for place, way in enumerate(ways):
        if (name := f"way{place}") in wall:
            yield {
                "case": way.case,
                "way": way.way,
                "wall_s": wall[name],
                "kernel_s": inside.get(name),
                "bytes": way.bytes,
                "flops": way.flops,
            }


def table(rows: list[dict[str, Any]]) -> None:
    for case in dict.fromkeys(row["case"] for row in rows):
        own = sorted((row for row in rows if row["case"] == case), key=lambda row: row["kernel_s"] or row["wall_s"])
        for row in [*own[:6], *(one for one in own[6:] if "Tile" not in one["way"])]:
            best = row["kernel_s"] or row["wall_s"]
            speed = (
                f"{row['bytes'] / best / 1e12:5.2f} TB/s"
                if row["bytes"]
                else f"{row['flops'] / best / 1e12:5.0f} TFLOP/s"
            )
            print(
                f"{case:18} {best * 1e6:9.1f} us {row['wall_s'] * 1e6:9.1f} us wall {speed}  {row['way']}", flush=True
            )


def main() -> None:
    out, *parts = [each for each in sys.argv[1:] if not each.startswith("--")]
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    note(jax.devices()[0].device_kind, jax.__version__, asdict(Tile(1, 1)))
    every = []
    for part in parts or ["check", *PARTS]:
        try:
            if part == "check":
                check()
                continue
            ways = list(PARTS[part]())
            ways = ways[:3] + ways[-2:] if SMALL else ways
            rows = list(timed(ways, folder / f"profile-{part}"))
        except Exception as error:
            note(part, "failed:", str(error)[:400])
            continue
        every += rows
        table(rows)
        (folder / "kernels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in every))
        note(part, len(rows), "ways")


if __name__ == "__main__":
    main()
