"""Relevance to a query: query likelihood, passages of long documents, and scores of a first stage."""
