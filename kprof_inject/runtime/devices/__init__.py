"""The devices of this process, by torch and by the CUDA driver."""
