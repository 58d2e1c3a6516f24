"""`dscale rl`: a question about reinforcement learning read, answered and laid out."""
