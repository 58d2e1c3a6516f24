"""Solutions of the chapter 'gpus'."""
