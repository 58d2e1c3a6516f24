"""Who hears what an answer says beside itself: notes on how the question was read, and how far it is.

The library keeps the notes with the answer; the terminal prints them on stderr and draws a bar.
"""


class Listener:
    """Keeps notes, lets progress pass."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Something the asker should know that is not the answer."""
        self.notes.append(text)

    def step(self, done: int, total: int) -> None:
        """How far it is; once begun, an answer counts towards one total."""

    def wait(self, text: str) -> None:
        """A word to someone who watches and has to wait; nobody else needs it."""

    def log(self, text: str) -> None:
        """A line on how a long run goes: heard as it comes, not kept."""
