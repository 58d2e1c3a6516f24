"""The page's modules as one script: every name arrives, and a change on the disk is seen."""

import json
import shutil
import subprocess

import pytest

pytest.importorskip("uvicorn", reason="`dscale web` needs the extra `web`.")

from dragonscale.web import page_bundle
from dragonscale.web.answers import answer
from dragonscale.web.server.files import PAGE, PageFiles


def test_no_import_or_export_is_left():
    files = {path.relative_to(PAGE).as_posix(): path.read_bytes() for path in PAGE.rglob("*") if path.is_file()}
    made = page_bundle.bundled(files)
    lines = made[page_bundle.SCRIPT].decode().splitlines()
    assert not [line for line in lines if line.startswith(("import ", "export ", "import{", "export{"))]
    assert made["index.html"].decode().count("stylesheet") == 1


def test_a_circle_is_refused():
    circle = {"a.js": 'import { b } from "./b.js";\nexport const a = b;\n', "b.js": 'import { a } from "./a.js";\n'}
    with pytest.raises(ValueError, match="imports itself"):
        page_bundle.script(circle, "a.js")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed.")
def test_modules_see_each_other():
    modules = {
        "js/main.js": 'import { twice as two } from "./lib/b.js";\nimport { one } from "./c.js";\nconsole.log(two(one));\n',
        "js/lib/b.js": 'import { one } from "../c.js";\nexport function twice(x) { return x + one; }\n',
        "js/c.js": 'export { one } from "./v.js";\n',
        "js/v.js": "const a=21;export{a as one};\n",
    }
    ran = subprocess.run(["node", "-e", page_bundle.script(modules, "js/main.js")], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("42\n", "")


def test_a_changed_module_is_sent_anew(tmp_path, monkeypatch):
    shutil.copytree(PAGE, tmp_path / "page")
    files = PageFiles(tmp_path / "page", tmp_path / "docs")
    before = files.file("/js/page.js")
    monkeypatch.setattr("dragonscale.web.server.files.RESCAN_S", -1.0)
    assert files.file("/js/page.js") is before
    with open(tmp_path / "page" / "js" / "main.js", "a") as main:
        main.write("// changed\n")
    after = files.file("/js/page.js")
    assert before is not None
    assert after is not None
    assert after.body.endswith(b"// changed\n})();\n")
    assert after.headers["etag"] != before.headers["etag"]


def test_the_first_answers_are_those_of_the_planner():
    """The plan that the file shows is judged anew: its time is still that, and the panels have the keys they have now."""
    first = json.loads((PAGE / "first.json").read_text())["train"]
    said = first["panels"]["answer"]
    found = {}
    fields = first["fields"] | {"plan": said["plan"], "alone": True}
    answer(
        {"view": "train", "fields": fields, "panels": ["answer", "time", "memory", "mesh"], "brief": True},
        lambda message: found.update({message["panel"]: message["data"]} if "panel" in message else {}),
    )
    assert set(found) < set(first["panels"])
    assert all(set(found[name]) <= set(first["panels"][name]) for name in found)
    steps = [panels["time"]["total"]["value"] for panels in (found, first["panels"])]
    assert steps[0] == pytest.approx(steps[1], rel=0.05), "python -m tools.static_edition.first_answers"


def test_there_is_one_logo():
    assert (PAGE / "icon.svg").read_text() == (PAGE.parents[3] / "docs" / "assets" / "logo.svg").read_text()
