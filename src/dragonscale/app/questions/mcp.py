"""What `dscale mcp` can be asked: nothing, it serves what others ask."""

from dragonscale.app.questions.flag import Question


class McpQuestion(Question):
    """A server on stdin and stdout."""
