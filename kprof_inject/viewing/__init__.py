"""Shows a trace in the Perfetto UI: a web server on this machine, and a browser."""
