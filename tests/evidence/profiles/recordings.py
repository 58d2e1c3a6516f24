"""Where the profiles recorded on an H200 lie: in `recorded/`, and those that are shipped as examples there alone."""

from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
_EXAMPLES = Path(__file__).parents[3] / "examples" / "profiles"
_SHIPPED = {
    "jax_train.xplane.pb.gz": "h200_train.xplane.pb.gz",
    "jax_decode.xplane.pb.gz": "h200_decode.xplane.pb.gz",
}


def recorded(name: str) -> Path:
    return _EXAMPLES / _SHIPPED[name] if name in _SHIPPED else RECORDED / name
