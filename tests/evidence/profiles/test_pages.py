"""A profile's page and its trace: whole, bounded, and safe with names that want to be markup."""

import gzip
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.profile.page import beside, page
from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.evidence.profiles import shown_step as shown
from dragonscale.evidence.profiles.analysis import analyse
from dragonscale.evidence.profiles.attribution import attributed
from dragonscale.evidence.profiles.recording import OpText, Recorder
from dragonscale.evidence.profiles.shown_step import shown_step

HERE = Path(__file__).parent / "recorded"
EVIL = """</script><script>alert(1)</script><img src=x onerror="alert('2')">\u2028&amp;"""


def evil_report() -> ProfileReport:
    """Three steps in which every name is markup."""
    record = Recorder(EVIL, EVIL)
    gpu = record.device(EVIL, "gpu")
    stream, host = record.track(gpu, EVIL, "ops"), record.track(-1, EVIL, "host")
    for step in range(3):
        for number in range(8):
            op = OpText(f"{EVIL}{number}", scope=EVIL, module=EVIL, source=EVIL, caller=EVIL, flops=1e9, bytes=1e6)
            record.event(stream, record.op(op), 100_000 * step + 10_000 * number, 6_000)
        record.event(host, record.op(OpText(EVIL)), 100_000 * step, 90_000)
    return ProfileReport.of(analyse(*attributed(record.made()), None))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_names_cannot_become_markup() -> None:
    report = evil_report()
    text = page(report, shown_step(report.analysis))
    tags = Tags()
    tags.feed(text)
    assert [tag for tag, _ in tags.found].count("script") == 2
    assert not [tag for tag, attrs in tags.found if tag == "img" or any(name.startswith("on") for name in attrs)]
    assert not [attrs for _, attrs in tags.found if "src" in attrs or "href" in attrs]
    assert "default-src 'none'" in text
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    assert any(EVIL[:40] in one["name"] for one in data["ops"].values())


def test_no_more_is_drawn_than_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    report = ds.profile(str(HERE / "torch_train.trace.json.gz"))
    whole = shown_step(report.analysis)
    monkeypatch.setattr(shown, "MAX_EVENTS", 100)
    few = shown_step(report.analysis)
    assert whole is not None
    assert few is not None
    devices = [one for one in few.slices if not one.track.startswith("host")]
    assert len(devices) == 100
    assert few.left_out == len([one for one in whole.slices if not one.track.startswith("host")]) - 100
    assert min(one.seconds for one in devices) >= 1e-6
    assert all(
        one.start_s >= 0 and one.start_s + one.seconds <= few.seconds * (1 + 1e-9) for one in (*few.slices, *few.own)
    )


def test_the_trace_has_the_step_our_reading_and_the_plan(tmp_path: Path) -> None:
    report: Any = ds.profile(
        str(HERE / "jax_prefill.xplane.pb.gz"),
        plan="tp1",
        program="prefill",
        model="llama3.2-1b",
        on="h200:1",
        batch="4",
        seq="2048",
    )
    report.save_timeline(str(tmp_path / "trace.json.gz"))
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    assert len(events) < 20_000
    named = {(each["pid"], each["args"]["name"]) for each in events if each["ph"] == "M" and "name" in each["args"]}
    assert {(2, "section"), (2, "phase"), (2, "idle")} <= named
    assert any(pid == 3 and "predicted: llama3.2-1b" in name for pid, name in named)
    matmuls = [
        each["args"]
        for each in events
        if each["ph"] == "X" and each["args"].get("kind") == "matmul" and each["pid"] == 1
    ]
    assert all({"section", "phase", "flops", "roofline_fraction"} <= set(args) for args in matmuls)
    step = max(each["ts"] + each["dur"] for each in events if each["ph"] == "X" and each["pid"] == 1)
    assert step <= 1.05e6 * report.step_s


@pytest.mark.skipif(shutil.which("node") is None, reason="the script is tried where there is a JavaScript")
def test_the_script_is_javascript(tmp_path: Path) -> None:
    (tmp_path / "page.js").write_text(beside("page.js"))
    subprocess.run(["node", "--check", str(tmp_path / "page.js")], check=True, timeout=60)
