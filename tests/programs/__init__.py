"""Small programs that the tests run as child processes, and how to start them."""
