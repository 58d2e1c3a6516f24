"""Models of the Hugging Face Hub by `org/name`: from the local cache, or their `config.json` alone.

The cache is read as `huggingface_hub` lays it out, without that package: a folder for each
repository, in it `refs/` that name commits and `snapshots/` of them. What is not there is fetched by
the package where it is installed (the extra `hub`), a few kilobytes; it knows the user's login.

>>> hub_name("Qwen/Qwen3-32B"), hub_name("https://huggingface.co/Qwen/Qwen3-32B/tree/main")
(HubName(repo='Qwen/Qwen3-32B', revision=''), HubName(repo='Qwen/Qwen3-32B', revision=''))
>>> hub_name("mistralai/Mixtral-8x7B-v0.1@refs/pr/4").revision, hub_name("llama3-8b"), hub_name("./a/b")
('refs/pr/4', None, None)
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from dragonscale.errors import InputError, shorten
from dragonscale.installing import install_hint
from dragonscale.models.catalogue import instead, nearest_preset, unplanned

_SITE = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_WORD = r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?P<repo>{_WORD}/{_WORD})(?:@(?P<revision>[\w./-]{{1,200}}))?", re.ASCII)
_FILES = re.compile(r"/(?:tree|blob|resolve|raw)/.*$")


@dataclass(frozen=True)
class HubName:
    """A repository of the Hub, and the revision of it where one is said."""

    repo: str
    revision: str = ""


def hub_name(text: str) -> HubName | None:
    """The repository that a text names, or None if it is no such name."""
    text = text.strip()
    if _SITE.match(text):
        text = _FILES.sub("", _SITE.sub("", text)).rstrip("/")
    match = _NAME.fullmatch(text)
    if match is None or "--" in match["repo"] or ".." in text:
        return None
    return HubName(match["repo"], match["revision"] or "")


def cache_folder() -> Path:
    """Where `huggingface_hub` keeps what it fetched, by the variables that move it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface"
    )
    return Path(home).expanduser() / "hub"


def cached(name: HubName) -> Path | None:
    """The folder of a repository's snapshot in the local cache, if it holds what a model is read from."""
    folder = cache_folder() / f"models--{name.repo.replace('/', '--')}"
    try:
        reference = folder / "refs" / (name.revision or "main")
        commit = name.revision
        if reference.is_file():  # a branch or a tag, with the commit in it
            commit = reference.read_text(encoding="utf-8").strip()
        if commit:
            folders = [folder / "snapshots" / commit]
        else:  # fetched by a commit's number: the newest
            folders = sorted((folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
        return next((path for path in folders if (path / "config.json").is_file() or any(path.glob("*.gguf"))), None)
    except (OSError, ValueError):
        return None


def fetch_config(name: HubName) -> Path:
    """A repository's `config.json`, fetched into the cache; one sentence where that cannot be."""
    shown = shorten(name.repo, 120)
    try:
        from huggingface_hub import hf_hub_download  # pyright: ignore[reportMissingImports]
        from huggingface_hub.utils import disable_progress_bars  # pyright: ignore[reportMissingImports]
        from huggingface_hub.utils.logging import set_verbosity_error  # pyright: ignore[reportMissingImports]
    except ImportError:
        refused = unplanned(name.repo)
        if refused is not None:
            raise refused from None
        close = nearest_preset(name.repo)
        guess = f" (the nearest preset is {close!r})" if close else ""
        raise InputError(
            f"The model {shown} is neither a preset{guess} nor in the local cache of the Hugging Face Hub, and "
            "huggingface_hub, which fetches its config, is not installed; give the path of its config.json, or install "
            f"it: {install_hint('hub')}"
        ) from None
    disable_progress_bars()
    set_verbosity_error()  # it logs every try
    if not reachable():  # it would try for half a minute
        refused = unplanned(name.repo)
        if refused is not None:
            raise refused
        guess = instead(name.repo.rpartition("/")[2])
        more = f". {guess}" if guess else "."
        if guess.startswith("did"):  # a question, which goes on with the sentence
            more = f", or {guess}"
        raise InputError(
            f"The model {shown} is not in the local cache, and the Hugging Face Hub cannot be reached; give the path "
            f"of its config.json{more}"
        )
    try:
        return Path(hf_hub_download(name.repo, "config.json", revision=name.revision or None))
    except Exception as error:  # the package's own errors, and those of whatever it uses for HTTP
        raise InputError(f"The model {shown} cannot be read from the Hugging Face Hub: {_reason(error)}.") from None


def fetch_dataset(name: HubName, endings: tuple[str, ...]) -> Path:
    """The folder of a dataset's files with some endings, from the cache or fetched into it."""
    message = f"{shorten(name.repo, 120)} is no file here"
    wanted = {"allow_patterns": [f"*{ending}" for ending in endings], "revision": name.revision or None}
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]

        return Path(snapshot_download(name.repo, repo_type="dataset", local_files_only=not reachable(), **wanted))
    except ImportError:
        more = f"if it is a dataset of the Hugging Face Hub, that takes huggingface_hub: {install_hint('hub')}"
        raise InputError(f"{message}; {more}") from None
    except Exception as error:  # as above
        more = f"as a dataset it cannot be read from the Hugging Face Hub: {_reason(error)}"
        raise InputError(f"{message}, and {more}.") from None


def reachable() -> bool:
    """Whether the Hub's name can be looked up; behind a proxy that is the proxy's to know."""
    import socket  # slow to load, and seldom needed
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname
    if getproxies():
        return True
    try:
        return bool(host and socket.getaddrinfo(host, 443))
    except OSError:
        return False


def _reason(error: Exception) -> str:
    """Why, by the names of the package's errors: their texts are paragraphs."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    reasons = {
        "GatedRepoError": "it is gated; ask for access on its page, then log in with `hf auth login`",
        "RepositoryNotFoundError": "there is no such repository, or it is private and you are not logged in",
        "RevisionNotFoundError": "it has no such revision",
        "OfflineModeIsEnabled": "it is not in the local cache, and HF_HUB_OFFLINE is set",
        "LocalEntryNotFoundError": "it is not in the local cache, and the Hub cannot be reached",
        "EntryNotFoundError": "it has no config.json",
        "HFValidationError": "that is no name of a repository",
    }
    unreachable = f"the Hub cannot be reached ({type(error).__name__})"
    return next((reason for kind, reason in reasons.items() if kind in kinds), unreachable)
