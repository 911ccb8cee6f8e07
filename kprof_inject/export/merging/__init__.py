"""Addition of our launches to a trace that torch.profiler or Proton wrote."""
