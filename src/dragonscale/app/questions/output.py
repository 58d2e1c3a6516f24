"""How an answer is given: the flags of all commands. They change what is printed and written, never the answer."""

from dragonscale.app.questions.flag import FILES, SHOW, Question, Several, Switch, Text, Whole


class Output(Question):
    """Which of these a command takes is said in the table of commands."""

    explain: Switch = Switch(group=SHOW)
    """Add every term, every part of memory and what stands behind the answer."""
    verify: Switch = Switch(group=SHOW)
    """Compile the best plan with XLA and compare (see `dscale verify`)."""
    json: Switch = Switch(group=SHOW)
    """Print the answer as JSON."""
    color: Text = Text("auto", "WHEN", SHOW, also=("--colour",), offers=("auto", "always", "never"))
    """auto (a terminal, not a pipe), always or never."""
    width: Whole = Whole(None, "N", SHOW)
    """Columns to use; as many as the terminal has without it."""
    save: Text = Text("", "FILE", FILES, offers="files")
    """Write the best plan to this TOML file."""
    timeline: Text = Text("", "FILE", FILES, also=("--perfetto",), offers="files")
    """Write the step as a timeline (opens in ui.perfetto.dev)."""
    plot: Text = Text("", "FILE", FILES, offers="files")
    """Draw a chart: .svg, .png, .pdf, .html or .json."""
    chart: Text = Text("", "KIND", FILES)
    """What --plot draws."""
    theme: Text = Text("light", "THEME", FILES, offers=("light", "dark"))
    """Colours of the chart: light or dark."""
    out: Text = Text("", "FILE", FILES, offers="files")
    """Write every row to this CSV file."""
    table: Several = Several("", "FILE", FILES, offers="files")
    """Write the rows to this file: .csv or .md; may be repeated."""
    html: Text = Text("", "FILE", FILES, offers="files")
    """Write the answer as a page of its own."""


TABLES = (".csv", ".md")
"""How the names of tables of rows end."""
ALWAYS = ("json", "color", "width")
"""The flags of every command."""
