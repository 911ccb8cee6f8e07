"""Measure launches with CUPTI, in a process of ours: hardware counters and sampled program counters."""
