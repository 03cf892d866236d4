"""Rank by asking: pairwise, pointwise and listwise prompting."""

from ccrank.prompting.listwise import prompt_list
from ccrank.prompting.pairwise import prompt_pair
from ccrank.prompting.pointwise import prompt_point

__all__ = ["prompt_list", "prompt_pair", "prompt_point"]
