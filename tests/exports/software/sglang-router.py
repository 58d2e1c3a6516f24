"""The parser of SGLang's load balancer (`sglang_router`): `keys` prints its names, `check` parses the commands that
start it."""

import argparse
import json
import sys

from _flags import names_of, parsed, told

sys.path.pop(0)  # a file here has the name of a package


def parser_of():
    from sglang_router.router_args import RouterArgs

    parser = argparse.ArgumentParser(prog="sglang_router", allow_abbrev=False)
    RouterArgs.add_cli_args(parser)
    return parser


def checked(words):
    """Nothing, or why the load balancer would not start."""
    from sglang_router.router_args import RouterArgs

    start = next(at for at, word in enumerate(words) if word.startswith("sglang_router"))
    try:
        RouterArgs.from_cli_args(parsed(parser_of(), words[start + 1 :]), use_router_prefix=False)
    except (ValueError, TypeError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def main():
    if sys.argv[1] == "keys":
        from importlib.metadata import version

        source = "sglang_router.router_args.RouterArgs.add_cli_args of the package's own wheel"
        told(
            {
                "software": "sglang-router",
                "version": version("sglang-router"),
                "source": source,
                "keys": names_of(parser_of()),
            }
        )
        return
    told([checked(case["words"]) for case in json.load(sys.stdin)])


if __name__ == "__main__":
    main()
