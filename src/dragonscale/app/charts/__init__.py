"""Charts of answers: rows out of their records, drawn by `dragonscale.sheets.charts`.

`pictures` has those of the smaller answers; the larger ones have theirs beside them (`app/train/train_charts.py`).
"""
