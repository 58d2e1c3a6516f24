"""Training plans in the words of trainers, one module each: `write`, `read`, `recognises`."""
