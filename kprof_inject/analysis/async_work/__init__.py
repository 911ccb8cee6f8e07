"""Asynchronous work that was in flight in a launch, from its issue to its completion."""
