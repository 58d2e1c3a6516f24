"""The command inside what launches it: the containers of a Kubernetes file, the `run` of a SkyPilot task."""

from dragonscale.exports.source import Source


def unwrapped(source: Source) -> Source:
    """The text of the commands that a launcher's file starts; anything else as it is."""
    return source
