"""The static edition: the page with the planner inside, as a folder for any static host.

    python -m tools.static_edition.build --out site/app

The page is that of `dscale web`; only its backend is another one: a Web Worker that runs the planner (`worker.js`),
which `planner/` holds as archives. Every address is relative, so the folder works under any path. Nothing is fetched
from anywhere else when it runs.
"""

import argparse
import json
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path

from dragonscale.errors import InputError
from dragonscale.web.answers import answer
from dragonscale.web.page_bundle import bundled, script
from tools.static_edition.archives import (
    Files,
    licence_text,
    module_name,
    numpy_files,
    packed,
    pyodide_files,
    sympy_files,
    yaml_files,
    zip_files,
)
from tools.static_edition.cards import card_data, cards
from tools.static_edition.first_answers import FILE, text
from tools.static_edition.links import card_link, link_files
from tools.static_edition.parts import HERE, fetch, parts

ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "dragonscale"
PAGE = SOURCE / "web" / "page"

# What runs programs or measures machines, and the server: a browser can do neither.
LEFT_OUT = (
    "runtime",
    "web/server",
    "web/page",
    "evidence/verify",
    "evidence/calibrate",
    "evidence/profiles",
    "evidence/logs",
    "commands/run",
    "commands/calibrate",
    "commands/profile",
    "commands/sweep",
    "commands/verify",
)
# What is said where a question needs such a part.
MISSING = {
    f"dragonscale.{one.replace('/', '.')}": (
        "This runs programs on a machine, which a page without a server cannot: run `dscale web`."
    )
    for one in LEFT_OUT
} | {
    "huggingface_hub": "Models of the Hugging Face Hub cannot be fetched by a page without a server: drop the model's "
    "config.json on the page, or run `dscale web`."
}
# Archives that an import fetches, by the packages they hold.
LATE = {"sympy": ("sympy", "mpmath"), "yaml": ("yaml",), "numpy_random": ("numpy.random",)}
FIRST = ("numpy.zip", "msgspec.zip", "dragonscale.zip")

# `wasm-unsafe-eval` allows WebAssembly and nothing else.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'"
)


# What is shown where somebody passes the address on; `make docs` puts the pictures beside it.
PREVIEW = """
  <meta property="og:title" content="Dragonscale: plan training and serving of Transformers">
  <meta property="og:description" content="Times, memory and cost on TPUs and GPUs, every number with its derivation.">
  <meta property="og:image" content="../pictures/web/train-light-wide.png">
  <meta name="twitter:card" content="summary_large_image">"""


# What stands in place of a page whose scripts a browser refuses, as all do for a file; the scripts take it away.
UNOPENED = re.compile(r'(<p class="loading unopened">).*?(</p>)')
HOW_TO_OPEN = (
    "Still empty? A browser runs this page from a web server and not from a file. In the folder of this file run "
    "<code>python -m http.server</code>, then open <code>http://localhost:8000/</code>."
)


def own_files() -> Files:
    """The package's modules and data, without what cannot run in a browser; and its version, where
    Python looks for it."""
    found = {}
    for path in sorted(SOURCE.rglob("*")):
        inside = path.relative_to(SOURCE).as_posix()
        left_out = any(inside.startswith(f"{one}/") for one in LEFT_OUT)
        if path.is_file() and not left_out and path.suffix not in (".pyc", ".typed", ".pyi"):
            found[f"dragonscale/{inside}"] = path.read_bytes()
    metadata = f"Metadata-Version: 2.1\nName: dragonscale\nVersion: {_version()}\n"
    return found | {f"dragonscale-{_version()}.dist-info/METADATA": metadata.encode()}


def _version() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def planner_files() -> Files:
    """Everything that the worker loads."""
    numpy, random = numpy_files()
    soon = soon_loaded()
    files = pyodide_files()
    stdlib = files.pop("python_stdlib.zip")
    lock = json.loads(files.pop("pyodide-lock.json"))
    manifest = {
        "first": FIRST,
        "late": {package: f"{name}.zip" for name, packages in LATE.items() for package in packages},
        "missing": MISSING,
    }
    return files | {
        "python_stdlib.zip": packed(zip_files(stdlib), soon),
        "pyodide-lock.json": json.dumps(
            {"info": lock["info"], "packages": {}}
        ).encode(),  # no package is fetched by name
        "numpy.zip": packed(numpy, soon | {module_name(one) for one in numpy}),
        "numpy_random.zip": packed(random),
        "msgspec.zip": packed(zip_files(fetch("msgspec").read_bytes()), soon),
        "yaml.zip": packed(yaml_files(), soon),
        "sympy.zip": packed(sympy_files(), soon),
        # what flags are about is read from the source of the questions
        "dragonscale.zip": packed(own_files(), {name for name in soon if ".questions." not in name}),
        "manifest.json": json.dumps(manifest).encode(),
        "catalogue.json": catalogue(),
    }


def asked_here(request: dict[str, object]) -> list[dict[str, object]]:
    """The messages of an answer, worked out on this machine."""
    messages: list[dict[str, object]] = []
    answer(request, messages.append)
    return messages


def catalogue() -> bytes:
    """What the form offers, worked out now: the page is drawn before the planner is there."""
    return json.dumps(next(one["data"] for one in asked_here({"view": "catalogue"}) if "panel" in one)).encode()


def soon_loaded() -> set[str]:
    """Modules that the questions of a first visit load, found by asking them."""
    model = {"model": "llama3-8b"}
    asked_here({"view": "train", "fields": model | {"on": "h100:8", "batch": "64seq", "seq": 8192}})
    asked_here({"view": "serve", "fields": model | {"on": "h100:1"}})
    import_module("sympy")
    import_module("dragonscale.web.in_browser")
    return set(sys.modules)


def page_files() -> Files:
    """The page, told to ask the worker."""
    files = {path.relative_to(PAGE).as_posix(): path.read_bytes() for path in PAGE.rglob("*") if path.is_file()}
    index = files["index.html"].decode()
    server = '<meta name="dragonscale-backend" content="server">'
    assert server in index, "The page does not say who answers."
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n  '
    index, replaced = UNOPENED.subn(rf"\1{HOW_TO_OPEN}\2", index)
    assert replaced == 1, "The page does not say how it is opened."
    docs = '\n  <meta name="dragonscale-docs" content="../">'  # `make docs` puts the page beside them
    files["index.html"] = index.replace(server, policy + server.replace("server", "worker") + docs + PREVIEW).encode()
    return files | bundled(files) | {"js/worker.js": (HERE / "worker.js").read_bytes()}


def card_files(page: Files) -> Files:
    """The cards that docs and course show: one page for all, the answers at the stops of each, the theme's colours."""
    index = re.sub(
        r"<(meta property|script)[^>]*>(</script>)?|<body>.*</body>",
        "",
        page["index.html"].decode(),
        flags=re.DOTALL,
    )
    body = '<body class="live-page"><div id="app"></div><script type="module" src="js/card.js"></script></body>'
    modules = {name: data.decode() for name, data in page.items() if name.endswith(".js")}
    return (
        {
            "card.html": index.replace("</html>", f"{body}\n</html>").encode(),
            "js/card.js": f"{script(modules, 'js/live_card.js')}\n".encode(),
            "cards/colours.json": json.dumps(json.loads(catalogue())["colours"]).encode(),
        }
        | {f"cards/{card.name}.json": card_data(card) for card in cards()}
        | link_files({one.name: card_link(one) for one in cards()})
    )


def licences() -> bytes:
    """Every part with its licence; what is compiled into Python is Python's and Pyodide's."""
    texts = [("Dragonscale", _version(), "Apache-2.0", "the planner and the page", (ROOT / "LICENSE").read_text())]
    for name, part in parts().items():
        own = HERE / part.licence_file
        text = own.read_text() if own.exists() else licence_text(name, part.licence_file)
        texts.append((name, part.version, part.licence, f"{part.what}; {part.home}", text))
    python = (HERE / "licences" / "python.txt").read_text()
    texts.append(
        ("Python", "3.12", "PSF-2.0", "the language and its library, inside Pyodide; https://python.org", python)
    )
    rule = "=" * 100
    blocks = [
        f"{rule}\n{name} {version} ({licence}): {what}\n{rule}\n\n{text}"
        for name, version, licence, what, text in texts
    ]
    return "\n\n".join(blocks).encode()


def build(out: Path) -> None:
    """Write the folder anew."""
    files = page_files()
    files |= card_files(files) | {f"planner/{name}": data for name, data in planner_files().items()}
    files |= {"LICENSES.txt": licences(), FILE: text().encode()}
    shutil.rmtree(out, ignore_errors=True)
    for name, data in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description="The page with the planner inside, for any static host.")
    parser.add_argument("--out", type=Path, default=ROOT / "site" / "app", help="the folder to write")
    out = parser.parse_args().out
    try:
        build(out)
    except InputError as error:
        raise SystemExit(str(error)) from None
    total = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {total / 1e6:.1f} MB in all; open it with `python -m http.server -d {out}`.")


if __name__ == "__main__":
    main()
