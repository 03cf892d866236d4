"""Ranking by prompting: pairwise, pointwise and listwise."""
