"""sgl-jax's own parser and the checks that it makes of its arguments, from a checkout of its source.

`keys` prints the names of `sgl_jax.launch_server`; `check` parses each command, makes its `ServerArgs` (whose
`__post_init__` settles defaults and refuses some) and runs `check_server_args`. Nothing that these import beyond the
source is used before a device is.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import types

from _flags import names_of, parsed, told

logging.disable(logging.CRITICAL)
sys.path.insert(0, os.path.join(os.environ["SGL_JAX_SOURCE"], "python"))
COMMIT = "cddbf6f1"


class Thing(type):
    """What stands for whatever is looked up in a module that is not there."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __contains__(cls, _):
        return False

    def __iter__(cls):
        return iter(())

    def __getitem__(cls, _):
        return cls

    def __or__(cls, _):
        return cls


class Absent(metaclass=Thing):
    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()

    def __or__(self, _):
        return self


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any module that cannot be found."""

    def find_spec(self, name, _, __=None):
        return None if name.startswith("sgl_jax") else importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: Absent if not name.startswith("__") else _missing(name)
        return module

    def exec_module(self, module):
        pass


def _missing(name):
    raise AttributeError(name)


def server():
    sys.meta_path.append(Stubs())
    # Parsers of answers and of function calls import tokenisers and schemas; of them only names are needed.
    from sgl_jax.srt.server_args import ServerArgs

    return ServerArgs


def parser_of(own):
    parser = argparse.ArgumentParser(prog="sgl_jax", allow_abbrev=False)
    own.add_cli_args(parser)
    return parser


def checked(own, words):
    """Nothing, or why the server would not start."""
    if "sgl_jax.launch_server" not in words:
        return None
    rest = words[words.index("sgl_jax.launch_server") + 1 :]
    rest = [word.replace("$NODE_RANK", "0").replace("$MASTER_ADDR", "10.0.0.1") for word in rest]
    try:
        made = own.from_cli_args(parsed(parser_of(own), rest))
        made.check_server_args()
    except (AssertionError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def main():
    own = server()
    if sys.argv[1] == "keys":
        source = f"python/sgl_jax/srt/server_args.py of github.com/sgl-project/sglang-jax at {COMMIT}, 2026-08-21"
        told({"software": "sgl-jax", "version": "2026-08-21", "source": source, "keys": names_of(parser_of(own))})
        return
    told([checked(own, case["words"]) for case in json.load(sys.stdin)])


if __name__ == "__main__":
    main()
