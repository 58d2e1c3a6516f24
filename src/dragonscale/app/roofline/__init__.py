"""How long one operation takes on one chip."""
