"""What can be asked, declared once.

A question is a frozen dataclass whose fields are flags (`questions/flag.py`). From it follow the flags of a
command with their help and completion, the parameters of the library's function, the keys of a sweep's tables
and of `dragonscale.toml`. Nothing heavy is loaded here, so that the command line starts in a blink; what a
question means is read in `reports/`.
"""
