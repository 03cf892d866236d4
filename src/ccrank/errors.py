"""The one exception that ccrank raises for what a user can mend."""


class CcrankError(Exception):
    """Something the user can mend: the message holds the offending value and the remedy."""
