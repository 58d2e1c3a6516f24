"""What one iteration of an engine takes, and what lies in memory while it runs."""
