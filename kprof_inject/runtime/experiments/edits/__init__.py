"""Kinds of edits that ``try`` makes, one module each, and their list."""
