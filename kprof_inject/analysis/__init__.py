"""Analysis of a launch: what its operations do, what limits it, what to change."""
