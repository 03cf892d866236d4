"""The exception that ccrank raises for errors that the user can fix."""


class CcrankError(Exception):
    """An error that the user can fix: the message contains the offending value and the remedy."""


class UnavailableError(CcrankError):
    """A model behind a server cannot be read at present. No item and no task is at fault, so others fail likewise."""


class CcrankWarning(UserWarning):
    """Something to know before relying on a ranking; the message says what to do about it."""


class ModelWarning(CcrankWarning):
    """A model reads plain text far worse than a language model should."""
