"""Our warps in somebody else's trace: that of ``torch.profiler``, or of Proton."""
