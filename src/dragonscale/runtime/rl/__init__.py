"""Reinforcement learning by our own program: trainer and engine in one process, weights handed over in memory."""
