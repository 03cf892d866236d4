"""From the name of a model to its weights and tokenizer in memory."""
