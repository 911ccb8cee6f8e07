"""Upper bounds of a launch's speed: the work of its operations, the rates of the units, and what limits it."""
