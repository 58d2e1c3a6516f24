"""What trainers and load generators log, read: a module for each, a table that recognises them, and the step or the
latencies that a run settled at."""
