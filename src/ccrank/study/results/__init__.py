"""The results of a study: schema, storing, loading, summaries, tables. Nothing here imports torch."""
