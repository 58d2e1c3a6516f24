"""How an answer is given: the flags of all commands. They change what is printed and written, never the answer."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import FILES, SHOW, Several, Switch, Text, Whole


@dataclass(frozen=True)
class Output:
    """Which of these a command takes is said in the table of commands."""

    explain: Switch = Switch("Add every term, every part of memory and what stands behind the answer.", group=SHOW)
    verify: Switch = Switch("Compile the best plan with XLA and compare (see `dscale verify`).", group=SHOW)
    json: Switch = Switch("Print the answer as JSON.", group=SHOW)
    color: Text = Text(
        "auto (a terminal, not a pipe), always or never.",
        default="auto",
        value="WHEN",
        group=SHOW,
        also=("--colour",),
        offers=("auto", "always", "never"),
    )
    width: Whole = Whole("Columns to use; as many as the terminal has without it.", default=None, value="N", group=SHOW)
    save: Text = Text("Write the best plan to this TOML file.", default="", value="FILE", group=FILES, offers="files")
    timeline: Text = Text(
        "Write the step as a timeline (opens in ui.perfetto.dev).",
        default="",
        value="FILE",
        group=FILES,
        also=("--perfetto",),
        offers="files",
    )
    plot: Text = Text(
        "Draw a chart: .svg, .png, .pdf, .html or .json.", default="", value="FILE", group=FILES, offers="files"
    )
    chart: Text = Text("What --plot draws.", default="", value="KIND", group=FILES)
    theme: Text = Text(
        "Colours of the chart: light or dark.", default="light", value="THEME", group=FILES, offers=("light", "dark")
    )
    out: Text = Text("Write every row to this CSV file.", default="", value="FILE", group=FILES, offers="files")
    table: Several = Several(
        "Write the rows to this file: .csv or .md; may be repeated.",
        default="",
        value="FILE",
        group=FILES,
        offers="files",
    )
    html: Text = Text("Write the answer as a page of its own.", default="", value="FILE", group=FILES, offers="files")


TABLES = (".csv", ".md")
"""How the names of tables of rows end."""
ALWAYS = ("json", "color", "width")
"""The flags of every command."""
