"""`dscale doctor`: what is installed, which devices and files there are, and what is missing for what."""

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from dragonscale.blocks.sheet import NextStep, Prose, Sheet, Title, facts, sheet
from dragonscale.commands.grids import grid
from dragonscale.commands.questions.faces import DoctorQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.files import user_cache
from dragonscale.installing import install_hint
from dragonscale.listener import Listener
from dragonscale.models.hub import cache_folder
from dragonscale.physics.kernels.profile_file import own_folder

# The extras that a user may want, each with what it is for.
EXTRAS = {
    "plot": "charts as .png, .svg and .pdf (--plot)",
    "web": "the page in a browser: dscale web",
    "hub": "models by org/name with logins and mirrors",
    "notebook": "answers as tables and charts in notebooks",
    "gpu-compiler": "dscale verify for GPUs, without one",
    "tpu": "dscale verify for TPUs, without one",
    "jax": "dscale run train, dscale calibrate",
    "serve": "dscale run serve, dscale run rl",
    "mcp": "the planner as tools for agents: dscale mcp",
    "ray": "sweeps on a cluster: dscale sweep --ray",
}
# What a device is by its file in /dev.
ACCELERATORS = (("NVIDIA GPU", "nvidia[0-9]*"), ("AMD GPU", "kfd"), ("TPU", "accel[0-9]*"))


class ExtraFound(msgspec.Struct):
    """An extra, what it is for, and its packages that are not installed."""

    extra: str
    gives: str
    missing: list[str]


class FolderFound(msgspec.Struct):
    """A place where something is kept between runs; `files` counts what lies in it."""

    what: str
    path: str
    files: int


class DoctorReport(Record):
    """What is installed here. `extras` with nothing missing can be used; planning needs none of them."""

    ROWS = "extras"

    version: str
    python: str
    system: str
    cores: int
    packages: dict[str, str]
    extras: list[ExtraFound]
    devices: list[str]
    kept: list[FolderFound]

    def headline(self) -> str:
        ready = sum(not extra.missing for extra in self.extras)
        return f"dragonscale {self.version}: the planner is ready, {ready} of {len(self.extras)} extras installed"


def ask(question: DoctorQuestion, listener: Listener) -> DoctorReport:
    """Look around; nothing is loaded, changed or asked of the network."""
    needed = required_packages()
    extras = [
        ExtraFound(name, gives, [package for package in needed.get(name, []) if not version_of(package)])
        for name, gives in EXTRAS.items()
    ]
    versions = {package: version_of(package) for names in needed.values() for package in names}
    return DoctorReport(
        version_of("dragonscale") or "from source",
        f"{platform.python_version()} ({sys.executable})",
        f"{platform.system()} {platform.release()} on {platform.machine()}",
        os.cpu_count() or 1,
        {name: version for name, version in sorted(versions.items()) if version},
        extras,
        devices(),
        kept_files(),
    ).came_from(question, listener.notes)


def version_of(package: str) -> str:
    """The version of an installed package; empty where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def required_packages() -> dict[str, list[str]]:
    """The packages of each extra by name, those of the planner under the empty one; extras within extras count."""
    try:
        lines = metadata.requires("dragonscale") or []
    except metadata.PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = {}
    within: list[tuple[str, str]] = []
    for line in lines:
        # `dragonscale[jax]; extra == "serve"`: a package, its extras, and the extra that needs it
        name, more, marker = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?[^;]*(?:;(.*))?", line).groups()  # type: ignore[union-attr]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", marker or "")
        # packages that there are for Linux on x86 only
        if "sys_platform" in (marker or "") and (sys.platform != "linux" or platform.machine() != "x86_64"):
            continue
        if name == "dragonscale":
            within += [(extra[1] if extra else "", extra_name) for extra_name in (more or "").split(",")]
        else:
            packages.setdefault(extra[1] if extra else "", []).append(name)
    # an extra that is made of others needs their packages
    for extra, other in within:
        packages[extra] = [*packages.get(other, []), *packages.get(extra, [])]
    return packages


def devices() -> list[str]:
    """The accelerators of this machine, by NVIDIA's tool where there is one, else by their files."""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.SubprocessError):
            listed = None
        if listed is not None and listed.returncode == 0:
            return list(filter(None, map(str.strip, listed.stdout.splitlines())))
    return [f"{name}: {path}" for name, files in ACCELERATORS for path in sorted(map(str, Path("/dev").glob(files)))]


def kept_files() -> list[FolderFound]:
    """Where files are kept between runs."""
    places = {
        "answers of compilers": user_cache("verify"),
        "compiled programs": user_cache("compiled"),
        "tokens of datasets": user_cache("tokens"),
        "kernel times of your devices": own_folder(),
        "models of the Hugging Face Hub": cache_folder(),
    }
    return [FolderFound(what, str(path), _count(path)) for what, path in places.items()]


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


def doctor_blocks(report: DoctorReport, detail: bool) -> Sheet:
    """What works first, what is missing for what, then where things lie."""
    missing = [extra.extra for extra in report.extras if extra.missing]
    ready = "The planner is ready."
    if missing:
        ready += " An extra that is missing below is only needed for what stands beside it."
    versions = "--explain: the version of every package."
    if detail:
        versions = ", ".join(f"{name} {version}" for name, version in report.packages.items())
    installed = {"installed": lambda extra: f"missing {', '.join(extra.missing)}" if extra.missing else "yes"}
    none = "none seen; planning, explaining and verifying need none"
    return sheet(
        Title(f"dragonscale {report.version}"),
        facts(
            ("so", ready),
            ("Python", report.python),
            ("system", f"{report.system}, {report.cores} cores"),
            ("accelerators", "; ".join(report.devices) or none),
        ),
        grid("doctor-extras", report.extras, own=installed),
        grid("doctor-folders", report.kept),
        Prose(versions, "" if detail else "dim"),
        NextStep(install_hint(*missing), "all that is missing") if missing else None,
    )


bind(DoctorReport, Face(doctor_blocks))
