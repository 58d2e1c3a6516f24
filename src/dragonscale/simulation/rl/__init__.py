"""Reinforcement learning: a step of generation, scoring, updates and weight transfer, from both planners' parts."""
