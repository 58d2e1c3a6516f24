"""Frameworks of reinforcement learning: a way to run a step as the command that each starts with, and back."""
