"""Watch a program for hours: its kernels' history, what became slower, which captures to keep, and the metrics."""
