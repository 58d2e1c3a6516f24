"""Answer cases in the tree that `PYTHONPATH` names: `python answers.py CASES.json ANSWERS.jsonl`.

Run as a script by `python -m tools.golden`, once for each tree and process; it imports nothing of the tools, so that an
old tree is asked by the same program.
"""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

VOLATILE = {"search_s", "seconds", "wall_s", "elapsed_s"}
"""Keys that say how long an answer took."""


def without_clock(value):
    if isinstance(value, dict):
        return {key: without_clock(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, str):
        return re.sub(r", searched in [\d.]+ ?\w+\.$", ".", value)
    return [without_clock(item) for item in value] if isinstance(value, list) else value


def ask(arguments):
    """Exit code, stdout (as data where it is JSON) and stderr of a command."""
    from dragonscale.__main__ import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
        except BaseException as error:  # a traceback is an answer too: a wrong one
            code = f"{type(error).__name__}: {error}"
    text = out.getvalue()
    with contextlib.suppress(ValueError):
        text = without_clock(json.loads(text))
    return {"exit": code, "out": text, "err": err.getvalue()}


def answer_page(request):
    from dragonscale.web.answers import answer

    messages = []
    answer(request, messages.append)
    return without_clock([message for message in messages if "progress" not in message])


def files_here():
    """What was written, as data where it is JSON."""
    texts = {str(path): path.read_text("utf-8", "replace") for path in sorted(Path().rglob("*")) if path.is_file()}
    return {name: json.loads(text) if name.endswith(".json") else text for name, text in texts.items()}


def answer_case(case):
    if case.startswith("page "):
        return {"page": answer_page(json.loads(case[5:]))}
    answers = []
    for command in case.split(" && "):
        words = shlex.split(command)[1:]
        answers.append(ask(words if "--json" in words or words[0] in ("help", "completion") else [*words, "--json"]))
    return {"answers": answers, "files": files_here()}


def main():
    cases, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]).resolve()
    home = os.getcwd()
    with out.open("w") as lines:
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                try:
                    answer = answer_case(case)
                finally:
                    os.chdir(home)
            lines.write(json.dumps({"case": case, "answer": answer}) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
