"""Threads, shared forward passes and open models."""
