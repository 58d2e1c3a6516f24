"""What `dscale run` answers: what came of a run, beside what was planned."""
