"""The course: problems with worked solutions, each answered by the planner's own functions.

A problem (`problem.py`) is a function of a few parameters that poses itself: the question, the answer, hints, a worked
solution and the values that usual mistakes give. `variants.py` draws fresh parameters from a seed, `judging.py` reads
what a reader answers, `chapters.py` knows the chapters, `progress.py` keeps what was solved in a file.
"""
