"""Virtual removal: texts of a kernel in which some operations cost nothing, one module for each kind of operation."""
