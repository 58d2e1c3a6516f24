"""Solutions of the chapter 'sharding'."""
