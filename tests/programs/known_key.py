"""Import this where kernels are compiled: each process hashes Triton's library of 400 MB for its cache keys otherwise.

No test gives two builds of Triton one cache: where Triton lies says as much."""

import triton

triton.runtime.cache.triton_key = lambda: f"{triton.__version__} in {triton.__file__}"
