"""What would make a training job fit, faster, cheaper, or explain what was measured."""
