"""`ds.calibrate`: the kernels of the device at hand, measured and fitted; or a profile checked on it.

>>> import dragonscale as ds
>>> found = ds.calibrate(minutes=5, install=True)  # doctest: +SKIP
>>> ds.calibrate(check="own").exit_code  # doctest: +SKIP
0
"""

from dragonscale.app.calibrate.ask import ask
from dragonscale.app.questions.calibrate import CalibrateQuestion
from dragonscale.faces.library.asking import asking

calibrate = asking(
    "calibrate",
    CalibrateQuestion,
    ask,
    """
    Time matmuls, memory, attention, decode attention and experts on the device at hand, in JAX or PyTorch, and fit a profile.

    Returns a `CalibrationReport`: `.tables` with their errors on kernels and shapes left out, `.profile` (the file, for
    `profile=` of `ds.train`, `ds.serve` …); with `check`, `.checked_tables` and an `.exit_code`.
    """,
)
