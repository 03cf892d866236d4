"""The commands that fit a scale, and that score items on one."""
