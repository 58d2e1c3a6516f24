"""Serving plans in the words of engines, one module each: `write`, `read`, `recognises`."""
