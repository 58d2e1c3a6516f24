"""Charts of answers: rows out of their records, drawn by `dragonscale.blocks.charts`.

`pictures` has those of the smaller answers; the larger ones have theirs beside them (`commands/train/train_charts.py`).
"""
