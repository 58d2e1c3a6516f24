"""`ds.model`: what a model weighs.

>>> import dragonscale as ds
>>> ds.model("llama3-8b")
<ModelReport: llama3-8b: 8.03B parameters, 7.5B used per token>
>>> shallow = ds.model("llama3-8b", seq="32k", assume="num_hidden_layers=16")
>>> shallow.parameters, shallow.rows()[0]["part"]
(4540469248, 'embed')
"""

from dragonscale.app.models.ask import ask_model
from dragonscale.app.questions.facts import ModelsQuestion
from dragonscale.faces.library.asking import asking

model = asking(
    "model",
    ModelsQuestion,
    ask_model,
    """
    What a model weighs: parameters, FLOPs, KV cache and activations, by part.

    Returns a `ModelReport`; `.to_frame()` has a row for each part.
    """,
)
