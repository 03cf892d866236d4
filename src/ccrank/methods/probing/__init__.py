"""Probes on hidden states: the paper's Contrast-Consistent Ranking, supervised counterparts and baselines."""
