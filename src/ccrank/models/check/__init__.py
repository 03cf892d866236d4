"""Checks that a model's weights, tokenizer and code agree, and their stored verdicts."""
