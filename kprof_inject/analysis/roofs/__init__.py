"""How fast a launch could be: the work of its operations, the rates of the units, and what limits it."""
