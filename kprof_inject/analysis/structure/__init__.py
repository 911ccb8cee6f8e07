"""Structure of a module: what the compiler made of each source line, and how two modules differ."""
