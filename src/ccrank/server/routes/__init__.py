"""The server's routes, one module for each group."""
