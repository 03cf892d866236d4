"""The commands of `ccrank`, one module each; `rank_…` are parts of `ccrank rank`."""
