"""Completion of commands, flags and values in bash, zsh and fish.

The scripts are static: everything they offer is written into them when `dscale completion SHELL` prints them, from
the table of commands and the fields of their questions, so that no key press starts Python. What no command changes is
in `bash.sh` (3.2 and later, which needs nothing beside bash itself), `zsh.sh` (as a file `_dscale` in a folder of
`fpath`, or sourced after `compinit`) and `head.fish`.
"""
