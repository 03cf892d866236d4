"""Beyond the paper: directed rankings without labels."""
