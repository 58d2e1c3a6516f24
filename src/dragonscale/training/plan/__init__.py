"""What a training plan is, what a software stack does with it, and what both have in common over a space of plans."""
