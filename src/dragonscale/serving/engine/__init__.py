"""What a serving engine is and runs: settings, formats, plans and launches."""
