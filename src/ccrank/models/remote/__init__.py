"""Models behind a server: readers that get log-probabilities through the OpenAI completions API."""

from ccrank.models.remote.address import Address, is_remote, shown_name
from ccrank.models.remote.client import Client
from ccrank.models.remote.remote_reader import OpenModel, RemoteReader, open_model

__all__ = ["Address", "Client", "OpenModel", "RemoteReader", "is_remote", "open_model", "shown_name"]
