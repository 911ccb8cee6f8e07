"""TTGIR text in, a tree of operations out, with the facts about each operation."""
