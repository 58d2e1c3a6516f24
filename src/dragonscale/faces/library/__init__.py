"""The functions of the library that are more than a command: those that are one are `Command.function`."""
