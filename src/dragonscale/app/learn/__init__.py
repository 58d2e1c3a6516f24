"""`dscale learn`: the problems of the course asked and judged."""
