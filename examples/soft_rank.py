"""An objective that is not in the paper, as a plugin: soft ranks should be a permutation.

ccrank bench --plugin examples/soft_rank.py --datasets scalaradj --methods soft-rank,triplet,pca,random --out mine
ccrank compare mine --methods soft-rank,triplet,pca,random
"""

import torch

from ccrank import register_objective


def soft_rank_loss(scores, mask, *, temperature=0.05):
    """Soft ranks r_i = Σ_j σ((s_i − s_j)/T), sorted, should be 0, 1, … n − 1: the mean squared distance from these."""
    pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
    wins = ((scores.unsqueeze(-1) - scores.unsqueeze(-2)) / temperature).sigmoid() * pairs
    ranks = (wins.sum(-1) - 0.5).masked_fill(~mask, torch.inf).sort(-1).values
    present = mask.sum(-1, keepdim=True)
    places = torch.arange(scores.shape[-1], device=scores.device)
    distance = torch.where(places < present, ranks - places, 0.0) / present
    return distance.square().sum(-1) / present.squeeze(-1)


register_objective("soft-rank", soft_rank_loss, sub_batch="triples")
