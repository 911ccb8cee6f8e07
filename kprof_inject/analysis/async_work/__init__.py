"""What was in flight in a launch: asynchronous work, from its issue to its completion."""
