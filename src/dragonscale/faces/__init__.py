"""How answers reach people: the command line and the Python library."""
