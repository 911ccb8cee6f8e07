"""Rules that find what limits a launch."""
