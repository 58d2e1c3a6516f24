"""Golden answers: what hundreds of commands, exports, problems, simulations and page requests answer, by commit.

    python -m tools.golden                        what differs from the last commit
    python -m tools.golden --against v0.2.0       … from another commit
    python -m tools.golden --only "dscale serve"  … among the cases whose line holds this text
    python -m tools.golden --exact                … to the last bit (otherwise to one part in 1e9)

`cases.py` lists the cases, `answers.py` answers them in the tree that `PYTHONPATH` names, `compare.py` says what
differs. Answers of a commit are kept in `.golden/` and made once.
"""
