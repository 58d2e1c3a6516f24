"""Charts of the smaller reports: rows out of their records, drawn by `dragonscale.sheets.charts`.

Each module has `KINDS`, what it can draw, first what is drawn without a word, and `draw(kind, asked, report)`; the
larger reports keep theirs beside them (`reports/train/charts.py`).
"""
