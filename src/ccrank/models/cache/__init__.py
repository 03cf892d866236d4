"""The cache of readings on disk."""
