"""Resumable studies: the grid of units, and running them."""
