"""The parser of SGLang's load generator: `keys` prints its names, `check` parses the commands that start it."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

from _flags import names_of, parsed, told

sys.path.pop(0)  # a file here has the name of a package


class Caught(Exception):
    """The parser, at the moment when the program would read its words."""


def parser_of():
    """The parser that the program makes in its `cli_main`: everything up to the reading of words."""
    found = []

    def stop(self, *_, **__):
        found.append(self)
        raise Caught

    spec = importlib.util.spec_from_file_location("server", Path(__file__).with_name("sglang.py"))
    server = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(__file__).parent))  # that file takes the first place off again
    spec.loader.exec_module(server)
    server.prepared()
    from sglang.benchmark.serving import cli_main

    kept, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, stop
    try:
        cli_main()
    except Caught:
        pass
    finally:
        argparse.ArgumentParser.parse_args = kept
    return found[0]


def checked(words):
    """Nothing, or why the load generator would not start."""
    start = next(at for at, word in enumerate(words) if word in ("sglang.bench_serving", "sglang.benchmark.serving"))
    try:
        parsed(parser_of(), words[start + 1 :])
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def main():
    if sys.argv[1] == "keys":
        from importlib.metadata import version

        source = "sglang.benchmark.serving of SGLang's own wheel"
        told(
            {
                "software": "sglang.bench_serving",
                "version": version("sglang"),
                "source": source,
                "keys": names_of(parser_of()),
            }
        )
        return
    told([checked(case["words"]) for case in json.load(sys.stdin)])


if __name__ == "__main__":
    main()
