"""The functions of `import dragonscale as ds`: each is a question asked from Python.

A function takes the fields of its question, and so what the command of that name takes, with objects where text
would name them; it returns the record that the command prints. A module for each, so that one costs no more to
import than it needs.
"""
