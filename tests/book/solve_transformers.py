"""Solutions of the chapter 'transformers'."""
