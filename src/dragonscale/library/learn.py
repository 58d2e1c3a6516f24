"""`ds.learn`: the problems of the course, asked and judged from Python.

>>> import dragonscale as ds
>>> ds.learn("rooflines").chapter
'rooflines'
"""

from dragonscale.library.asking import asking
from dragonscale.questions.learn import LearnQuestion
from dragonscale.reports.learn.ask import ask

learn = asking(
    "learn",
    LearnQuestion,
    ask,
    """
    The chapters of the course, the problems of one, or a problem: its question with the numbers of a seed, hints,
    the verdict on an answer, the worked solution.
    """,
)
