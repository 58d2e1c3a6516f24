"""The command that adds an extra to the environment that runs this, in a form that works for how it was installed.

Dragonscale is installed from its source. pip, uv and pipx record where that source was (`direct_url.json` of the
installed package), so the hint names it; where nothing is recorded, or the source is gone, the hint is the one for the
folder of a clone.
"""

import json
import shlex
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

PACKAGE = "dragonscale"


def install_hint(*extras: str) -> str:
    """A shell command that adds extras, `pip install '.[web]'` in a clone."""
    source = recorded_source()
    if source is None:
        return f"pip install {_requirement('.', extras)}  # in a clone of Dragonscale"
    return f"{_installer()} {_requirement(source, extras)}"


def recorded_source() -> str | None:
    """What the installer was given: a folder, an archive or the address of a repository; `.` where that is the current
    folder, None where it is not known or no longer there."""
    # An editable install has a second record beside the source, which does not say where it came from.
    records = (found.read_text("direct_url.json") for found in metadata.distributions(name=PACKAGE))
    text = next(filter(None, records), None)
    if text is None:
        return None
    record = json.loads(text)
    address = record.get("url", "")
    if "vcs_info" in record:
        return f"{PACKAGE} @ {record['vcs_info'].get('vcs', 'git')}+{address}"
    parts = urlsplit(address)
    if parts.scheme != "file":
        return f"{PACKAGE} @ {address}"
    path = Path(unquote(parts.path))
    if not path.exists():
        return None
    return "." if path == Path.cwd() else str(path)


def _requirement(source: str, extras: tuple[str, ...]) -> str:
    """The source with its extras, quoted for a shell."""
    names = f"[{','.join(extras)}]"
    if " @ " in source:
        return shlex.quote(source.replace(" @ ", f"{names} @ ", 1))
    return f"'{source}{names}'" if "'" not in source else shlex.quote(f"{source}{names}")


def _installer() -> str:
    """The installer of this environment."""
    environment = Path(sys.prefix)
    if (environment / "uv-receipt.toml").exists():
        return "uv tool install --force"
    if (environment / "pipx_metadata.json").exists():
        return "pipx install --force"
    interpreter = shlex.quote(sys.executable)
    if find_spec("pip") is None:
        return f"uv pip install --python {interpreter}" if shutil.which("uv") else f"pip --python {interpreter} install"
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{interpreter} -m pip install"
