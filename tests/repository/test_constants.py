"""The tables of constants on the validation pages are those of the files that ship, with errors of exactly these
constants."""

import re
import tomllib
from dataclasses import replace
from importlib import resources

import msgspec
import pytest

from dragonscale.serving.engine.engine import adjust, engines
from tools import list_constants
from tools.list_constants import (
    CHANGED,
    PAGES,
    KeptPage,
    KeptTable,
    constants_table,
    errors_table,
    fingerprint,
    free_of,
    page,
    read_kept,
    records_of,
    tables,
    with_block,
)
from tools.refit import get

ROW = re.compile(r"^\| (?:`([\w.-]+)`)? *\| `([\w.]+)` \| [^|]+ \| ([^|]+) \|", re.M)


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_is_what_the_tool_would_write_now(kind: str) -> None:
    text = PAGES[kind].read_text(encoding="utf-8")
    assert page(kind, text, read_kept()[kind]) == text, "run `python -m tools.list_constants`"


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_states_what_ships(kind: str) -> None:
    shown, name = {}, ""
    for row in ROW.finditer(PAGES[kind].read_text(encoding="utf-8").partition("<!-- constants -->")[2]):
        name = row[1] or name
        shown[name, row[2]] = float(row[3])
    fitted = read_kept()[kind].refits
    free = {(name, one.path) for name, some in free_of(kind).items() if name in fitted for one in some}
    assert set(shown) == free
    assert shown == {(name, path): pytest.approx(get(records_of(kind)[name], path), rel=1e-5) for name, path in free}


def test_errors_of_other_constants_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = read_kept()["serving"]
    assert "vllm" in kept.refits
    own = fingerprint(engines()["sglang"], free_of("serving")["sglang"])  # as if it had just been refitted
    kept.refits["sglang"] = msgspec.structs.replace(kept.refits["sglang"], fingerprint=own)
    changed = adjust(engines()["vllm"], host={"request_s": 0.5})
    monkeypatch.setattr(list_constants, "engines", lambda: engines() | {"vllm": changed})
    constants, errors = constants_table("serving", kept), errors_table("serving", kept)
    assert re.search(r"\| `vllm` \| `host.request_s` \| [^|]+ \| 0.5 \| – \|", constants)
    assert re.search(r"\| `vllm`, TPOT \| \d+ \| – \| – \| – \| – \| – \|", errors)
    assert "%" in next(line for line in errors.splitlines() if "`sglang`, TPOT" in line)
    assert tables("serving", kept)["errors"].endswith(CHANGED)


def test_a_fingerprint_is_of_what_predictions_depend_on() -> None:
    vllm, free = engines()["vllm"], free_of("serving")["vllm"]
    assert fingerprint(vllm, free) == fingerprint(
        msgspec.structs.replace(vllm, why="another reason", name="other"), free
    )
    assert fingerprint(vllm, free) != fingerprint(adjust(vllm, kernels={"gap_s": 1e-5}), free)
    assert fingerprint(vllm, free) != fingerprint(vllm, [replace(free[0], high=2 * free[0].high), *free[1:]])


def test_tables_go_between_their_marks() -> None:
    text = "before\n<!-- errors -->\nold\n<!-- end -->\nafter\n<!-- held out -->\n<!-- end -->\n"
    found = with_block(with_block(text, "errors", "| new |"), "held out", "| more |")
    assert found == "before\n<!-- errors -->\n| new |\n<!-- end -->\nafter\n<!-- held out -->\n| more |\n<!-- end -->\n"
    with pytest.raises(SystemExit, match="no place called 'nothing'"):
        with_block(text, "nothing", "")
    kept = KeptPage({}, {"errors": KeptTable("| old |", {"maxtext": "of another day"})})
    assert tables("training", kept)["errors"] == f"| old |\n\n{CHANGED}"


KERNELS = {"matmul": "matmul", "attention": "attention, prefill", "decode": "attention, decoding", "grouped": "experts"}
KERNEL_ROW = re.compile(
    r"^\| ([a-z, ]+) \| (\w+) \| (\w+) \| ([^|]+) \| (\d+) \| ([\d.]+%) \| ([\d.]+%) \| ([\d.]+%|–) \|", re.M
)


def test_the_page_of_kernels_states_what_the_profiles_rest_on() -> None:
    shown = {}
    for kernel, dtype, chip, who, *rest in KERNEL_ROW.findall(
        (PAGES["serving"].parent / "validation-kernels.md").read_text()
    ):
        shown[kernel, dtype, chip, who if kernel == "experts" else ""] = tuple(rest)
    profiles = resources.files("dragonscale.physics.kernels") / "profiles"
    known = {}
    for key in [key for key in shown if key[2] not in ("b200", "h100", "h200")]:  # told in a note
        file = {"l40s": "generic-gpu"}.get(key[2], key[2])
        assert f"{shown.pop(key)[0]} rows" in (profiles / f"{file}.toml").read_text()
    for chip in ("b200", "h100", "h200"):
        file = tomllib.loads((profiles / f"{chip}.toml").read_text())
        for kind, label in KERNELS.items():
            for dtype, table in file[kind].items():
                for who, own in table.items() if kind == "grouped" else [("", table)]:
                    on = own["rests_on"]
                    errors = [on.get(name) for name in ("median_ape", "held_out", "unseen_shapes")]
                    said = ["–" if one is None else f"{one:.1%}" for one in errors]
                    known[label, dtype, chip, who] = (str(on["rows"]), *said)
    assert shown == known
