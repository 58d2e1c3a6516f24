"""The problems, one module or package a chapter. Each imports only what it asks of the planner."""
