"""Checkpoint files: what their headers say of formats, bytes and the model inside."""
