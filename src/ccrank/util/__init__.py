"""Small shared functions: text, files, Z-scores, cancellation."""
