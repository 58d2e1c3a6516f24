"""How long one collective takes."""
