"""`ds.export` and `ds.import_plan`: plans in the words of the software that runs them, and back.

>>> import dragonscale as ds
>>> made = ds.export("tp2", to="vllm", model="llama3-8b", on="h100:2", batch=32, prompt=1024, output=256)
>>> [*made.files]
['vllm.sh']
>>> ds.import_plan(made.text()).plan["tensor"]
2
"""

from dragonscale.app.export.ask import ask as ask_export
from dragonscale.app.imported.ask import ask as ask_import
from dragonscale.app.questions.export import ExportQuestion, ImportQuestion
from dragonscale.faces.library.asking import asking

export = asking(
    "export",
    ExportQuestion,
    ask_export,
    """
    A plan as the files and commands of the software that runs it, and of what launches it.

    Returns an `ExportReport`: `.files` by name, `.differences` what the software cannot say, `.save(folder)` writes them.
    """,
)
import_plan = asking(
    "import_plan",
    ImportQuestion,
    ask_import,
    """
    The config or command that someone runs today, read as a plan.

    Returns an `ImportReport`: `.plan`, `.model`, `.workload`; `.save("plan.toml")` writes a plan file, and `ds.train` and
    `ds.serve` take the config itself as their plan.
    """,
)
