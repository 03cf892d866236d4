"""Prompts as arrays of tokens, with the places of answers and items."""
