"""Selectors and marker comments, the sites that they find in a module, and the plan of records at these sites."""
