"""Views: what the page can ask for. A view is a module with a table `PANELS` of functions from what was asked to plain
data; `registry` finds it by its name.
"""
