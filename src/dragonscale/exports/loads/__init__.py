"""The planned traffic as the command of a load generator: `write`."""
