"""Front ends of fine-tuning: TRL, axolotl, LLaMA-Factory, torchtune and ms-swift, a table of terms each."""

from dragonscale.exports.trainers.tuners.tuner import Tuner

TUNERS = {name: Tuner(name) for name in ("axolotl", "llamafactory", "torchtune", "trl", "swift")}
