"""The course: problems with worked solutions, each answered by the planner's own functions.

A chapter is a text file (`problems/`, read by `chapters.py`). A problem (`problem.py`) poses itself with the
numbers drawn: the question, the answer, hints, a worked solution and the values that usual mistakes give; what its
expressions may call is in `expressions.py` and `functions/`. `variants.py` draws fresh numbers from a seed,
`judging.py` reads what a reader answers, `progress.py` keeps what was solved in a file.
"""
