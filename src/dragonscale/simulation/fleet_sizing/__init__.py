"""Fleets as they are asked for: what they hold, what they cost, and which fleet would hold."""
