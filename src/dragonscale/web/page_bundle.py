"""The page's modules as one script and its styles as one sheet, so that it is there after a handful of requests.

Every module becomes a function that is called once, after those it imports; what it exports is what the function gives
back. The modules keep to the few forms of import and export that are read here, and to no circles.

>>> one = 'import { b as c } from "./b.js";\\nexport const a = c + 1;\\n'
>>> print(script({"js/a.js": one, "js/b.js": "export function b() {}\\n"}, "js/a.js"))
const m0 = (() => {
function b() {}
return { b };
})();
const m1 = (() => {
const { b: c } = m0;
const a = c + 1;
return { a };
})();
"""

import posixpath
import re
from collections.abc import Callable, Mapping

SCRIPT, STYLES = "js/page.js", "page.css"
_ENTRY = "js/main.js"
_IMPORT = re.compile(r'^(import|export) \{([^}]*)\} from "([^"]+)";\n?', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|const|class) (\w+))", re.MULTILINE)
_LAST = re.compile(r"export\{([^}]*)\};?\s*$")
_SHEET = re.compile(r'\s*<link rel="stylesheet" href="([^"]+)">')


def bundled(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The page's files by name: what is made of them, the index that loads it among it."""
    texts = {name: body.decode() for name, body in files.items() if name.endswith((".js", ".html", ".css"))}
    index = texts["index.html"]
    sheets = _SHEET.findall(index)
    index = _SHEET.sub("", index).replace(_ENTRY, SCRIPT)
    index = index.replace("</title>", f'</title>\n  <link rel="stylesheet" href="{STYLES}">', 1)
    styles = "\n".join(texts[name] for name in sheets)
    bundle = {SCRIPT: script(texts, _ENTRY) + "\n", STYLES: styles, "index.html": index}
    return {name: text.encode() for name, text in bundle.items()}


def script(modules: Mapping[str, str], entry: str) -> str:
    """The modules that one needs, and itself last, as one script."""
    names: dict[str, str] = {}
    parts: list[str] = []

    def add(path: str) -> str:
        if path in names:
            if not names[path]:
                raise ValueError(f"{path} imports itself through others.")
            return names[path]
        names[path] = ""
        body = _module(modules[path], lambda other: add(posixpath.normpath(posixpath.join(path, "..", other))))
        names[path] = f"m{len(parts)}"
        parts.append(f"const {names[path]} = (() => {{\n{body}}})();")
        return names[path]

    add(entry)
    return "\n".join(parts)


def _module(text: str, name_of: Callable[[str], str]) -> str:
    """A module as the body of a function."""
    exports: list[str] = []

    def taken(match: re.Match[str]) -> str:
        kind, names, other = match.groups()
        pairs = [pair.strip().split(" as ") for pair in names.replace("\n", " ").split(",") if pair.strip()]
        if kind == "export":
            exports.extend(f"{pair[-1]}: {name_of(other)}.{pair[0]}" for pair in pairs)
            return ""
        return f"const {{ {', '.join(': '.join(pair) for pair in pairs)} }} = {name_of(other)};\n"

    body = _IMPORT.sub(taken, text)
    exports += [match[1] for match in _EXPORT.finditer(body)]
    body = _EXPORT.sub("", body)
    if last := _LAST.search(body):
        pairs = [pair.strip().split(" as ") for pair in last[1].split(",")]
        exports += [f"{pair[-1]}: {pair[0]}" for pair in pairs]
        body = body[: last.start()]
    return f"{body.rstrip()}\n" + (f"return {{ {', '.join(exports)} }};\n" if exports else "")
