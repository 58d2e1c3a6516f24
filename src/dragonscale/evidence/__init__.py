"""Where the numbers come from and how well they hold: compilers, silicon, the world."""
