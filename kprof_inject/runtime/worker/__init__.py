"""The worker process, which repeats saved launches: with records, delays, edits or counters. And what ``try`` edits."""
