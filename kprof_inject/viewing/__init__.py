"""Show a trace in the Perfetto UI, with a web server on this machine and a browser."""
