"""Models behind a server: readers that get log-probabilities through the OpenAI completions API."""

from ccrank.remote.address import Address, is_remote, shown_name
from ccrank.remote.client import Client
from ccrank.remote.reader import OpenModel, RemoteReader, open_model

__all__ = ["Address", "Client", "OpenModel", "RemoteReader", "is_remote", "open_model", "shown_name"]
