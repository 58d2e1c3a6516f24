"""How long it takes to judge every configuration of a model on every chip of the catalogue, in CPU-seconds of one
process."""

import time

from dragonscale.models import load_model
from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.serving.engine.checkpoint import legal_formats
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.space.frontier import Ask, explore
from dragonscale.serving.space.ranking import frontier
from dragonscale.serving.space.space import slices_of

MODELS = ("llama3-70b", "gpt-oss-120b", "deepseek-v3")


def run() -> None:
    ask, engine = Ask(2048, 512), load_engine("generic")
    print(f"{'model':<16}{'configurations':>16}{'on the frontier':>17}{'CPU seconds':>13}{'per second':>12}")
    for name in MODELS:
        model, start = load_model(name), time.process_time()
        chips = [load_chip(name) for name in chip_names()]
        formats = {chip.name: legal_formats(engine.name, chip, model) for chip in chips}
        found = [one for chip in chips for one in explore(model, slices_of(chip), formats[chip.name], engine, ask)]
        best = frontier(found)
        taken = time.process_time() - start
        print(f"{name:<16}{len(found):>16,}{len(best):>17}{taken:>13.1f}{len(found) / taken:>12,.0f}")


if __name__ == "__main__":
    run()
