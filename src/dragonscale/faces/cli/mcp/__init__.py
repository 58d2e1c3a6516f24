"""`dscale mcp`: the planner as tools that agents call, by the Model Context Protocol over stdin and stdout.

Every tool is a command: its parameters are the fields of the command's question, and its result is the answer, as text
and as the record that `--json` prints. So a new command is a tool without a line here. Tools read files that they are
given and write none.
"""
