"""The parser of sgl-jax's load balancer: `keys` prints its names, `check` parses the commands that start it."""

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

from _flags import names_of, parsed, told

# The file itself, without the package around it: it imports nothing but the standard library.
PLACE = Path(os.environ["SGL_JAX_SOURCE"], "python", "sgl_jax", "srt", "disaggregation", "router_args.py")


def router():
    spec = importlib.util.spec_from_file_location("router_args", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["router_args"] = module
    spec.loader.exec_module(module)
    return module.RouterArgs


def parser_of(own):
    parser = argparse.ArgumentParser(prog="sgl_jax router", allow_abbrev=False)
    own.add_cli_args(parser)
    return parser


def checked(own, words):
    """Nothing, or why the load balancer would not start."""
    start = next(at for at, word in enumerate(words) if word.endswith("launch_router"))
    try:
        made = own.from_cli_args(parsed(parser_of(own), words[start + 1 :]))
    except (ValueError, TypeError) as error:
        return str(error)
    return None if made.mini_lb and made.pd_disaggregation else "it takes only --mini-lb with --pd-disaggregation"


def main():
    own = router()
    if sys.argv[1] == "keys":
        source = (
            "python/sgl_jax/srt/disaggregation/router_args.py of github.com/sgl-project/sglang-jax at cddbf6f1, "
            "2026-08-21"
        )
        told(
            {"software": "sgl-jax-router", "version": "2026-08-21", "source": source, "keys": names_of(parser_of(own))}
        )
        return
    told([checked(own, case["words"]) for case in json.load(sys.stdin)])


if __name__ == "__main__":
    main()
