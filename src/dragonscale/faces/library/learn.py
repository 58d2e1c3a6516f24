"""`ds.learn`: the problems of the course, asked and judged from Python.

>>> import dragonscale as ds
>>> ds.learn("rooflines").chapter
'rooflines'
"""

from dragonscale.app.learn.ask import ask
from dragonscale.app.questions.learn import LearnQuestion
from dragonscale.faces.library.asking import asking

learn = asking(
    "learn",
    LearnQuestion,
    ask,
    """
    The chapters of the course, the problems of one, or a problem: its question with the numbers of a seed, hints,
    the verdict on an answer, the worked solution.
    """,
)
