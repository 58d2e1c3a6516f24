"""Whether this commit can be released: wheel and sdist are built, looked into, installed on every Python there is, and
asked.

    python -m tools.check_release                  # a table of checks; the exit code is 1 where one fails
    python -m tools.check_release --full           # also the commands that the README begins with, in a clean clone
    python -m tools.check_release --python 3.12    # one Python alone

Everything happens in a temporary folder; what is installed comes from the package index.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.build_docs import unchecked_pages
from tools.docs_links import broken_links
from tools.refresh_docs import pages
from tools.release_contents import (
    LARGEST_ARCHIVE,
    LARGEST_INSTALL,
    changelog_faults,
    sdist_faults,
    sizes_of,
    unreleased,
    wheel_faults,
)
from tools.software import python_for

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
JOBS = (
    "dscale train llama3-70b --on h100:512 --batch 4Mi --seq 8192 --tokens 15T --top 1",
    "dscale serve llama3-70b --on h100:8 --ttft 2s --tpot 40ms",
    "dscale simulate llama3-8b --on h100:1 --rate 2/s --requests 200",
    "dscale roofline 'bf16[B,8192] @ bf16[8192,28672]' --on v5e",
    "dscale explain train fsdp64 --model llama3-8b --on v5e:8x8 --batch 1Mi --seq 4096",
    "dscale export fsdp8 --to torchtitan,slurm --model llama3-8b --on h100:8 --batch 64seq --seq 4096 --out run",
    "dscale learn --list",
)
"""The main jobs of the README, as a plain install has to answer them."""
SAME = "dscale train llama3-8b --on h100:8 --batch 64seq --seq 4096 --plan fsdp8 --json"
"""Asked of every install; all answer alike."""


@dataclass(frozen=True)
class Checked:
    """One line of the table; `faults` are what is wrong, `said` what was found."""

    name: str
    said: str
    faults: tuple[str, ...] = ()

    def __str__(self) -> str:
        mark = "FAIL" if self.faults else "ok"
        more = "".join(f"\n        {fault}" for fault in self.faults[:12])
        return f"{mark:<6}{self.name:<28}{self.said}{more}"


def run(words: Sequence[str], cwd: Path, timeout: int = 900) -> subprocess.CompletedProcess[str]:
    """A process without this checkout's packages in its way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "VIRTUAL_ENV"))}
    env = {**kept, "COLUMNS": "80", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=timeout)


def package_files() -> list[str]:
    """Every file of the package that git knows, as a wheel names it."""
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name.removeprefix("src/") for name in listed.stdout.splitlines()]


def version() -> str:
    """The version of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def check_words() -> Iterator[Checked]:
    """What needs no build: the changelog, and the links of the docs."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    waiting = unreleased(text)
    said = f"{version()}; {waiting} entries wait under Unreleased" if waiting else version()
    yield Checked("changelog", said, tuple(changelog_faults(text, version())))
    every = [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "THIRD_PARTY.md"]
    faults = [f"{page.name}: {link} leads nowhere" for page in every for link in broken_links(page, unchecked_pages())]
    yield Checked("links and anchors", f"{len(every)} pages", tuple(faults))


def check_archives(place: Path) -> Iterator[Checked]:
    """Wheel and sdist, built from what git has of this checkout and looked into."""
    source = place / "source"
    clone(source)
    built = run([sys.executable, "-m", "build", "--outdir", str(place / "dist"), str(source)], place)
    if built.returncode:
        yield Checked("build", "wheel and sdist", (built.stdout[-800:] + built.stderr[-800:],))
        return
    for name, pattern, judge in (("wheel", "*.whl", wheel_faults), ("sdist", "*.tar.gz", sdist_faults)):
        (archive,) = (place / "dist").glob(pattern)
        sizes, weight = sizes_of(archive), archive.stat().st_size
        faults = judge(sizes, package_files())
        faults += [f"it has {weight:,} bytes"] if weight > LARGEST_ARCHIVE else []
        faults += [] if f"-{version()}" in archive.name else [f"its name is {archive.name}"]
        yield Checked(name, f"{archive.name}: {len(sizes)} files, {weight / 1e6:.1f} MB", tuple(faults))


def clone(place: Path) -> None:
    """This checkout as it is now, without what git ignores: changes that are not committed count."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes((ROOT / name).read_bytes())


def check_installs(place: Path, python: str, base: str, same: dict[str, float]) -> Iterator[Checked]:
    """Both archives in environments of their own under one Python."""
    for kind, pattern, jobs in (("wheel", "*.whl", JOBS), ("sdist", "*.tar.gz", JOBS[3:4])):
        (archive,) = (place / "dist").glob(pattern)
        name, home = f"{kind} on Python {python}", place / f"{kind}-{python}"
        made = install(home, base, archive)
        if made.returncode:
            yield Checked(name, "not installed", (made.stderr[-1500:],))
            continue
        size = weight_of(home)
        faults = (
            [f"a plain install has {size / 1e6:.1f} MB, and may have {LARGEST_INSTALL / 1e6:.1f}"]
            if size > LARGEST_INSTALL
            else []
        )
        begun = time.monotonic()
        faults += asked(home, ["dscale --version", *jobs], f"dragonscale {version()}")
        answer = run([str(home / "bin" / "dscale"), *shlex.split(SAME)[1:]], home)
        same[name] = (
            round(json.loads(answer.stdout)["plans"][0]["step_s"], 9) if answer.returncode == 0 else float("nan")
        )
        if kind == "wheel":
            faults += hint_faults(home)
        yield Checked(name, f"{size / 1e6:.1f} MB, {len(jobs)} jobs in {time.monotonic() - begun:.0f} s", tuple(faults))


def hint_faults(home: Path) -> list[str]:
    """What goes wrong when the command that messages print for an extra is followed."""
    python = str(home / "bin" / "python")
    hint = run([python, "-c", "from dragonscale.installing import install_hint; print(install_hint('web'))"], home)
    followed = run(["bash", "-c", hint.stdout], home)
    works = run([python, "-c", "import starlette, uvicorn"], home)
    if hint.returncode or followed.returncode or works.returncode:
        return [f"{hint.stdout.strip()}: {(hint.stderr + followed.stderr + works.stderr).strip()[-300:]}"]
    return []


def install(home: Path, base: str, archive: Path) -> subprocess.CompletedProcess[str]:
    """An environment with the archive and nothing else."""
    made = run([base, "-m", "venv", "--without-pip", str(home)], home.parent)
    if made.returncode:
        return made
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet", str(archive)]
    return run(pip, home.parent)


def weight_of(home: Path) -> int:
    """Bytes of what is installed."""
    return sum(path.stat().st_size for path in (home / "lib").rglob("*") if path.is_file() and not path.is_symlink())


def asked(home: Path, commands: Sequence[str], first: str) -> list[str]:
    """What goes wrong when an install is asked; the first command prints the version."""
    faults = []
    for command in commands:
        done = run([str(home / "bin" / "dscale"), *shlex.split(command)[1:]], home)
        if done.returncode or not done.stdout.strip():
            faults.append(f"{command}: exit {done.returncode}, {(done.stderr or 'no output').strip()[-300:]}")
        elif command == commands[0] and version() not in done.stdout:
            faults.append(f"{command} prints {done.stdout.strip()}, not {first}")
    return faults


def first_commands(readme: str) -> list[list[str]]:
    """The `make` commands in the first code block of the README, as words.

    >>> first_commands("# A\\n\\n```sh\\ngit clone URL a && cd a\\nmake demo   # why\\nmake test\\n```\\n")
    [['make', 'demo'], ['make', 'test']]
    """
    block = re.search(r"^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    lines = block[1].splitlines() if block else []
    return [shlex.split(line, comments=True) for line in lines if line.startswith("make ")]


def check_clone(place: Path) -> Iterator[Checked]:
    """The commands that the README begins with, in a clean clone."""
    home = place / "clone"
    done = run(["git", "clone", "--quiet", str(ROOT), str(home)], place)
    if done.returncode:
        yield Checked("clean clone", "not made", (done.stderr[-500:],))
        return
    commands = first_commands((home / "README.md").read_text(encoding="utf-8"))
    if not commands:
        yield Checked("commands of the README", "none", ("its first code block has no `make` command",))
    for command in commands:
        begun = time.monotonic()
        done = run(command, home, 7200)
        faults = (done.stdout[-1500:] + done.stderr[-500:],) if done.returncode else ()
        yield Checked(f"{shlex.join(command)}, clean clone", f"{time.monotonic() - begun:.0f} s", faults)


def checks(place: Path, pythons: Sequence[str], full: bool) -> Iterator[Checked]:
    """Every check, as it is done."""
    yield from check_words()
    broken_build = False
    for one in check_archives(place):
        broken_build |= one.name == "build"
        yield one
    same: dict[str, float] = {}
    for python in () if broken_build else pythons:
        base = python_for(python)
        if base is None:
            yield Checked(
                f"Python {python}", "not installed on", ("it is not on this machine; --python leaves it out",)
            )
        else:
            yield from check_installs(place, python, base, same)
    if same:
        alike = len(set(same.values())) == 1
        yield Checked(
            "one answer everywhere", SAME, () if alike else tuple(f"{name}: {step}" for name, step in same.items())
        )
    yield from check_clone(place) if full else ()


def main(arguments: Sequence[str] | None = None, show: Callable[[str], object] = print) -> int:
    """Check, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also the README's first commands in a clean clone")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="a Python to install on; all without it")
    given = parser.parse_args(arguments)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for one in checks(Path(scratch), given.python or PYTHONS, given.full):
            show(str(one))
            failed += bool(one.faults)
    show(f"{failed} checks failed." if failed else "Ready to release.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
