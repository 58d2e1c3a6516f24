"""What a replica does when requests keep coming: prompts, caches, speculation, cost."""
