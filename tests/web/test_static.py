"""The static edition: its parts are what they should be, nothing that it loads is left out, and in a browser without a
network it gives the numbers of the command line."""

import functools
import http.server
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Collection
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.web.in_browser import answer_text
from dragonscale.web.late_packages import LatePackages
from tools.static_edition import archives, parts
from tools.static_edition.build import LATE, LEFT_OUT, own_files, page_files

TRAIN = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": 8192}
COMMAND = ("train", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "8192", "--json")
REGISTRIES = ("https://registry.npmjs.org/", "https://files.pythonhosted.org/packages/")


def test_every_part_is_pinned_and_licensed():
    for name, part in parts.parts().items():
        assert re.fullmatch(r"[0-9a-f]{64}", part.sha256), name
        assert part.version in part.path.name, name
        assert bool(part.url) != bool(part.vendored), name
        assert part.vendored or part.url.startswith(REGISTRIES), name
        assert part.licence, name


def test_the_vendored_part_is_whole_and_has_its_licence():
    part = parts.parts()["msgspec"]
    assert parts.fetch("msgspec").stat().st_size == part.size
    assert "Redistribution and use in source" in archives.licence_text("msgspec", part.licence_file)


def test_a_changed_part_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "CACHE", tmp_path)
    (tmp_path / "pyyaml-6.0.3.tar.gz").write_bytes(b"something else")
    with pytest.raises(InputError, match="not that of"):
        parts.fetch("pyyaml")


def test_without_a_network_the_way_out_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "CACHE", tmp_path)
    monkeypatch.setattr(parts, "parts", lambda: {"here": _part("http://127.0.0.1:9/none-1.0.tgz")})
    with pytest.raises(InputError, match=r"could not be fetched .* put the file at"):
        parts.fetch("here")


def _part(url: str) -> parts.Part:
    return parts.Part("here", "1.0", "a test", "", "0" * 64, 1, "MIT", "LICENSE", url=url)


LOADED = """
import json, sys
from dragonscale.web.in_browser import answer_text
said = []
answer_text(sys.argv[1], said.append)
print(json.dumps([json.loads(said[-1]), sorted(sys.modules)]))
"""


def test_the_archive_holds_what_a_plan_loads_and_nothing_of_a_server():
    request = json.dumps(
        {"view": "train", "fields": TRAIN | {"plan": "fsdp8"}, "panels": ["answer", "time"], "brief": True}
    )
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, request], capture_output=True, text=True, check=True, timeout=120
    )
    last, loaded = json.loads(ran.stdout)
    assert last.get("done") is True, last
    held = {archives.module_name(name) for name in own_files() if name.endswith(".py")}
    assert {name for name in loaded if name.startswith("dragonscale")} <= held
    absent = {"jax", "starlette", "uvicorn", "scipy", "pandas", "huggingface_hub", "sympy", "numpy.random"}
    assert not absent & set(loaded)


def test_the_page_asks_the_worker_and_may_run_no_other_script():
    files = page_files()
    index = files["index.html"].decode()
    assert '<meta name="dragonscale-backend" content="worker">' in index
    assert "script-src 'self' 'wasm-unsafe-eval'" in index
    texts = (
        data.decode()
        for name, data in files.items()
        if name.endswith((".js", ".html", ".css")) and "vendor" not in name
    )
    assert not any(re.search(r"(src=|href=|from ?|import\(?|url\()[\"'](https?:)?//", text) for text in texts)


def test_opened_from_a_file_it_says_how_to_open_it(page_browser, tmp_path):
    """Browsers refuse modules of files, so what is shown then is the page as it is written."""
    for name, data in page_files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    page = page_browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    line = page.locator(".unopened")
    line.wait_for(state="visible", timeout=20_000)
    assert "python -m http.server" in line.inner_text()
    page.close()


def test_a_late_package_is_fetched_when_it_is_imported(monkeypatch, tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("dragonscale_late_test/__init__.py", "number = 7")
    asked: list[str] = []
    fetch = lambda name: (asked.append(name), packed.getvalue())[1]  # noqa: E731
    finder = LatePackages(
        {"dragonscale_late_test": "late.zip"}, {"dragonscale.no_such_part": "Run `dscale web`."}, tmp_path, fetch
    )
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("dragonscale_late_test").number == 7
    assert asked == ["late.zip"]
    with pytest.raises(InputError, match="Run `dscale web`"):
        importlib.import_module("dragonscale.no_such_part")


def test_an_answer_that_nobody_wants_ends():
    said: list[str] = []
    request = json.dumps({"view": "chips", "fields": {"name": "h100"}, "panels": ["record", "sheet"]})
    answer_text(request, said.append, lambda: True)
    assert len(said) == 1


def test_what_is_left_out_is_there_to_be_left_out():
    source = Path(__file__).parents[2] / "src" / "dragonscale"
    assert all((source / one).is_dir() for one in LEFT_OUT)
    assert {"sympy", "yaml"} <= set(LATE)


def test_no_view_needs_what_is_left_out_to_be_loaded():
    """Modules that the planner in the browser imports on loading, followed by their text; what a function imports is
    told when it is called."""
    files = {archives.module_name(name): data for name, data in own_files().items() if name.endswith(".py")}
    todo = [name for name in files if name.startswith("dragonscale.web")]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or name.split(".")[-1].startswith("__"):
            continue
        seen.add(name)
        assert name in files, f"{name} is not in the archive"
        todo += _imported(name, files[name].decode(), files)
    assert "dragonscale.training.search.search" in seen


_IMPORT = re.compile(r"^from (dragonscale[\w.]*) import (\([^)]*\)|.*)$|^import (dragonscale[\w.]*)", re.MULTILINE)


def _imported(name: str, text: str, files: Collection[str]) -> list[str]:
    """Modules of the package that a module's own level imports, and the packages around them."""
    found = []
    for module, names, alone in _IMPORT.findall(text):
        one = module or alone
        parts_of = one.split(".")
        found += [".".join(parts_of[:count]) for count in range(1, len(parts_of) + 1)]
        found += [f"{one}.{word}" for word in re.findall(r"\w+", names) if f"{one}.{word}" in files]
    return [other for other in found if other != name]


# In the browser.


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The edition under a path of its own, on a plain file server."""
    folder = tmp_path_factory.mktemp("site")
    # in a process of its own: it draws pictures with a browser, and one may be open here
    command = [sys.executable, "-m", "tools.static_edition.build", "--out", str(folder / "some" / "path")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if "could not be fetched" in ran.stderr:
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0, ran.stderr
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/some/path/"
    server.shutdown()
    server.server_close()


ASK = """async (request) => {
  const { ask } = await import("./js/backend.js");
  const messages = [];
  await ask(request, (message) => messages.push(message));
  return messages;
}"""


def _open(context, site: str):
    """The page with every other address out of reach; what it asked for elsewhere is collected."""
    strays: list[str] = []

    def only_here(route):
        if route.request.url.startswith((site, "blob:", "data:")):
            route.continue_()
        else:
            strays.append(route.request.url)
            route.abort()

    context.route("**/*", only_here)
    page = context.new_page()
    page.set_default_timeout(240_000)
    page.goto(site)
    return page, strays


def _panels(messages: list[dict]) -> dict:
    assert messages[-1].get("done") is True, messages[-1]
    return {one["panel"]: one["data"] for one in messages if "panel" in one}


@pytest.mark.slow
def test_offline_it_gives_the_numbers_of_the_command_line(page_browser, site):
    context = page_browser.new_context()
    page, strays = _open(context, site)
    page.evaluate(ASK, {"view": "chips", "fields": {"name": "h100"}, "panels": ["record"]})  # the planner is there
    context.set_offline(True)
    found = _panels(page.evaluate(ASK, {"view": "train", "fields": TRAIN}))
    ran = subprocess.run(
        [sys.executable, "-m", "dragonscale", *COMMAND],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ,
    )
    expected, given = json.loads(ran.stdout), found["record"]
    assert (
        0 < expected.pop("search_s") < given.pop("search_s") * 100
    )  # how long the search took: the one that may differ
    differs = list(_differences(expected, given, "$"))
    assert not differs, differs[:10]
    assert found["answer"]["feasible"]
    assert not strays
    context.close()


@pytest.mark.slow
def test_the_page_shows_the_plan_and_says_what_needs_a_server(page_browser, site):
    context = page_browser.new_context()
    page, strays = _open(context, site)
    page.wait_for_selector("#answer")
    page.locator("#answer").get_by_text("MFU").first.wait_for()
    assert "dscale web" in page.inner_text("footer.edition")
    assert not strays
    context.close()


SERVE = {"model": "llama3-8b", "on": "h100:1"}
OTHERS = (
    {"view": "serve", "fields": SERVE, "panels": ["record"]},
    {"view": "simulate", "fields": SERVE | {"rate": "2/s", "requests": 200}, "panels": ["record"]},
    {"view": "roofline", "fields": {"expression": "X[b,d] · W[d,f]", "on": "h100"}},
    {"view": "shard", "fields": {"expression": "A[I,J_X] · B[J_X,K] -> C[I,K]", "mesh": "X=4"}},
    {"view": "why", "of": "train", "number": "step_s", "fields": TRAIN | {"plan": "fsdp8"}},
    {"view": "export", "of": "train", "to": "torchtitan", "fields": TRAIN | {"plan": "fsdp8"}},
    {"view": "judge", "text": "vllm serve meta-llama/Meta-Llama-3-8B -tp 2", "on": "h100:2", "model": "llama3-8b"},
)


@pytest.mark.slow
def test_other_views_answer_as_they_do_here(page_browser, site):
    """With what is loaded late: SymPy for formulas, the random numbers of a simulation."""
    context = page_browser.new_context()
    fetched: list[str] = []
    context.on("request", lambda request: fetched.append(request.url.removeprefix(site)))
    page, strays = _open(context, site)
    for asked in OTHERS:
        messages: list[str] = []
        answer_text(json.dumps(asked), messages.append)
        expected = _panels([json.loads(text) for text in messages])
        differs = list(_differences(expected, _panels(page.evaluate(ASK, asked)), asked["view"]))
        assert not [one for one in differs if "search_s" not in one], differs[:5]
    assert {"planner/sympy.zip", "planner/numpy_random.zip"} <= set(fetched)
    assert not strays
    context.close()


CANCEL = """async ([long, short]) => {
  const { ask } = await import("./js/backend.js");
  const stop = new AbortController();
  const begun = performance.now();
  await ask(long, (message) => { if (message.progress > 0) stop.abort(); }, stop.signal);
  const given_up = performance.now() - begun;
  await ask(short, () => {});
  const other = performance.now() - begun - given_up;
  await ask(long, () => {});
  return { other, whole: performance.now() - begun - given_up - other };
}"""


@pytest.mark.slow
def test_a_search_that_nobody_waits_for_gives_way(page_browser, site):
    context = page_browser.new_context()
    page, _ = _open(context, site)
    short = {"view": "chips", "fields": {"name": "h100"}, "panels": ["record"]}
    page.evaluate(ASK, short)
    fields = {"model": "llama3-70b", "on": "v5p:8x16x16", "batch": "8Mi", "seq": 8192}
    page.evaluate(ASK, {"view": "train", "fields": fields, "panels": ["answer"]})  # modules are loaded now
    took = page.evaluate(CANCEL, [{"view": "train", "fields": fields | {"batch": "6Mi"}, "panels": ["answer"]}, short])
    assert took["other"] < took["whole"] / 2, took
    context.close()


MEANWHILE = """async ([long, quick]) => {
  const { ask } = await import("./js/backend.js");
  const ended = [];
  const noted = (name) => (message) => { if (message.done) ended.push(name); };
  const whole = ask(long, noted("search"));
  await new Promise((resolve) => { setTimeout(resolve, 300); });
  await ask(quick, noted("slider"));
  await whole;
  return ended;
}"""


@pytest.mark.slow
def test_a_slider_is_answered_while_a_search_runs(page_browser, site):
    context = page_browser.new_context()
    page, _ = _open(context, site)
    fields = {"model": "llama3-70b", "on": "v5p:8x16x16", "batch": "8Mi", "seq": 8192}
    given = {"view": "train", "fields": fields | {"plan": "fsdp512 tp4", "alone": True}, "panels": ["answer"]}
    page.evaluate(ASK, given | {"brief": True})  # modules are loaded now
    moved = given | {"fields": given["fields"] | {"batch": "4Mi"}, "brief": True}
    assert page.evaluate(MEANWHILE, [{"view": "train", "fields": fields, "panels": ["answer"]}, moved]) == [
        "slider",
        "search",
    ]
    context.close()


def _differences(expected: object, given: object, where: str):
    """Where two records differ, numbers to one part in a thousand million: another NumPy may add up in
    another order."""
    if isinstance(expected, dict) and isinstance(given, dict):
        for key in expected.keys() | given.keys():
            yield from _differences(expected.get(key, "absent"), given.get(key, "absent"), f"{where}.{key}")
    elif isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        for number, pair in enumerate(zip(expected, given, strict=True)):
            yield from _differences(*pair, f"{where}[{number}]")
    elif isinstance(expected, float | int) and isinstance(given, float | int) and not isinstance(expected, bool):
        if not math.isclose(expected, given, rel_tol=1e-9):
            yield f"{where}: {expected} is {given} in the browser"
    elif expected != given:
        yield f"{where}: {str(expected)[:100]} is {str(given)[:100]} in the browser"
