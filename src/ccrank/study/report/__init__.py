"""Figures and HTML reports of results."""
