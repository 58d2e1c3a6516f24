"""Arithmetic with units, chips, models and closed forms."""
