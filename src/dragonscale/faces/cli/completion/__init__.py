"""Completion of commands, flags and values in bash, zsh and fish.

The scripts are static: everything they offer is written into them when `dscale completion SHELL` prints them, from
the table of commands and the fields of their questions, so that no key press starts Python.
"""
