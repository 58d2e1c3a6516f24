"""OpenRLHF's own parser and the checks that follow it, as its script has them, on exported commands."""

import argparse
import ast
import contextlib
import datetime
import io
import json
import sys
from importlib import metadata
from pathlib import Path

sys.path.append(sys.path.pop(0))  # this file has the package's name

from _flags import names_of, parsed

FILE = Path(str(metadata.distribution("openrlhf").locate_file("openrlhf/cli/train_ppo_ray.py")))
CONFIG = Path(str(metadata.distribution("openrlhf").locate_file("openrlhf/utils/config.py")))


def parts():
    """The statements of its `__main__`: those that make the parser, and those that check what was parsed."""
    body = next(one for one in ast.parse(FILE.read_text()).body if isinstance(one, ast.If)).body
    reads = next(place for place, one in enumerate(body) if "parse_args" in ast.unparse(one))
    checks = [one for one in body[reads + 1 :] if not isinstance(one, ast.ImportFrom)]
    return body[:reads], [one for one in checks if not ast.unparse(one).startswith(("train(", "if args.use_ms"))]


def run(statements, **names):
    """What statements leave behind."""
    exec(compile(ast.Module(statements, []), str(FILE), "exec"), names)
    return names


MAKES, CHECKS = parts()


def parser():
    return run(MAKES, argparse=argparse, datetime=datetime.datetime)["parser"]


def keys():
    """Every flag of the parser; the name of a run is made of the time."""
    version, table = metadata.version("openrlhf"), names_of(parser())
    del table["--logger.wandb.run_name"]["default"]
    source = f"openrlhf {version} of the package index: openrlhf/cli/train_ppo_ray.py"
    return {"software": "OpenRLHF", "version": version, "source": source, "keys": table}


def check(case):
    """None where the script goes on to train; otherwise what it says."""
    words = case["words"]
    hierarchize = run(ast.parse(CONFIG.read_text()).body)["hierarchize"]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            args = parsed(parser(), words[words.index("openrlhf.cli.train_ppo_ray") + 1 :])
            run(CHECKS, args=args, hierarchize=hierarchize)
        except (AssertionError, ValueError) as error:
            return str(error)
    return None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
