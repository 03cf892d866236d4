"""How the server does its work: threads, shared forward passes, open models."""
