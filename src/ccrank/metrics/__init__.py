"""Evaluation metrics with their chance levels: pure functions on scores and gold values, in which more = higher."""
