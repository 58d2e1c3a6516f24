"""`ds.profile`: where the time of a recorded step went.

>>> import dragonscale as ds
>>> found = ds.profile(
...     "profile.xplane.pb", plan="fsdp=8", model="llama3-8b", on="h100:8", batch="64seq", seq=4096
... )  # doctest: +SKIP
>>> found.step_s, found.parts, found.savings[0]  # doctest: +SKIP
"""

from dragonscale.app.profile.ask import ask
from dragonscale.app.questions.profile import ProfileQuestion
from dragonscale.faces.library.asking import asking

profile = asking(
    "profile",
    ProfileQuestion,
    ask,
    """
    Where did the time of a step go? A profile of JAX, PyTorch or Nsight Systems read, beside its plan where one is given.

    Returns a `ProfileReport`: `.step_s`, `.parts`, `.groups`, `.ops`, `.communication`, `.gaps`, `.savings`; `.to_frame()` has a row for each
    group of ops. Seconds, FLOPs and bytes are those of one step on one device.
    """,
)
