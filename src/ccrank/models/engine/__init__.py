"""Forward passes over prefix trees or padded rows."""
