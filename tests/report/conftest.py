"""Stands here so that pytest puts this folder on ``sys.path``: the tests in folders below import the helpers in it."""
