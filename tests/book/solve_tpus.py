"""Solutions of the chapter 'tpus'."""
