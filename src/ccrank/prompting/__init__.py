"""Ranking by prompting: pairwise, pointwise and listwise."""

from ccrank.prompting.listwise import describe_shuffles, list_requests, prompt_list
from ccrank.prompting.pairwise import describe_pairs, pair_requests, pairs_asked, prompt_pair
from ccrank.prompting.pointwise import describe_ratings, point_requests, prompt_point

__all__ = [
    "describe_pairs",
    "describe_ratings",
    "describe_shuffles",
    "list_requests",
    "pair_requests",
    "pairs_asked",
    "point_requests",
    "prompt_list",
    "prompt_pair",
    "prompt_point",
]
