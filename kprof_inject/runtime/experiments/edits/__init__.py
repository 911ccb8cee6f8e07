"""Kinds of edits that ``try`` makes."""
