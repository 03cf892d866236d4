"""A jury: several models rank the same list, and their scores are averaged. Models err differently, so that the mean of
models of a kind is better than each; where they disagree, less is certain."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ccrank.confidence import Confidence, confidence_of
from ccrank.errors import CcrankError
from ccrank.metrics.order import tau_b
from ccrank.models.reading import Cost
from ccrank.ranking import Ranking, Uncertainty, finite
from ccrank.scale import Scale
from ccrank.scale.stored import Known
from ccrank.util.text import quoted
from ccrank.util.zscores import z_scores, z_scores_of_mean

if TYPE_CHECKING:
    from ccrank.models.remote import OpenModel

SEPARATOR = ","
MAX_MEMBERS = 8
DRAWS = 512
SIZE_POWER = 0.5
"""A member weighs this power of its number of parameters: a model of four times the size counts twice."""


def members_of(model: str) -> tuple[str, ...]:
    """The models of "default,gemma-3-270m"; one model is no jury, and has itself alone.

    >>> members_of("default, gemma-3-270m")
    ('default', 'gemma-3-270m')
    """
    # Not pathlib's, which raises an OSError if the name is too long.
    return (model,) if SEPARATOR not in model or os.path.exists(model) else names_in(model)  # noqa: PTH110


def names_in(model: str) -> tuple[str, ...]:
    """As `members_of`, of names that are no paths."""
    names = tuple(name.strip() for name in model.split(SEPARATOR))
    if not all(names) or len(set(names)) < len(names) or len(names) > MAX_MEMBERS:
        raise CcrankError(
            f"a jury is up to {MAX_MEMBERS} different models with commas between them, such as default,gemma-3-270m; "
            f"got {quoted(model)}"
        )
    return names


class Verdict(NamedTuple):
    """What one member says of every list, and the number of its model's parameters, if it is known."""

    rankings: Sequence[Ranking]
    parameters: int | None

    @classmethod
    def of(cls, rankings: Sequence[Ranking], reader: OpenModel) -> Verdict:
        """What one member said; its model may then be closed."""
        return cls(rankings, parameters_of(reader))


def parameters_of(reader: OpenModel) -> int | None:
    """The number of a model's parameters; None if its server does not say."""
    if reader.behind_server:
        stated = reader.server.weights["parameters"]
        return stated if isinstance(stated, int) and stated > 0 else None
    return int(sum(parameter.numel() for parameter in reader.loaded.model.parameters()))


def combined(verdicts: Sequence[Verdict]) -> list[Ranking]:
    """The jury's ranking of each list."""
    names = [verdict.rankings[0].model for verdict in verdicts if verdict.rankings]
    if twice := [name for name in names if names.count(name) > 1]:
        raise CcrankError(
            f"two models of the jury are both {twice[0]}, which would count twice: leave one out, or rename the folder "
            "of one if they differ"
        )
    weights = weights_by_size([verdict.parameters for verdict in verdicts])
    return [
        joined(of_list, weights) for of_list in zip(*(verdict.rankings for verdict in verdicts), strict=True)
    ]


def fitted(scales: Sequence[Scale], readers: Sequence[OpenModel]) -> Scale:
    """The jury's scale of a list, from its members' scales."""
    if len(scales) == 1:
        return scales[0]
    rankings = [scale.ranking for scale in scales if scale.ranking is not None]
    if len(rankings) < len(scales):
        raise CcrankError("a jury's scale is fitted to one list; fit several lists with a single model")
    verdicts = [Verdict.of([one], reader) for one, reader in zip(rankings, readers, strict=True)]
    [ranking] = combined(verdicts)
    details = {name: value for name, value in scales[0].notes.details.items() if name == "labels"}
    notes = replace(
        scales[0].notes,
        model=ranking.model,
        identity=SEPARATOR.join(scale.notes.identity for scale in scales),
        confidence=ranking.confidence,
        consistency={name: finite(value) for name, value in ranking.consistency.items()},
        details=details | {"jury": ranking.details["jury"]},
        warnings=ranking.warnings,
    )
    weights = tuple(weights_by_size([verdict.parameters for verdict in verdicts]).tolist())
    return Scale(notes, Known.of(ranking), ranking=ranking, members=tuple(scales), weights=weights)


def weights_by_size(parameters: Sequence[int | None]) -> np.ndarray:
    """(M,) with the sum 1; equal where the size of one is not known."""
    known = [count for count in parameters if count is not None]
    powers = np.array(known if len(known) == len(parameters) else [1] * len(parameters)) ** SIZE_POWER
    return np.asarray(powers / powers.sum())


def mean_of(scores: Sequence[Any], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M, N) Z-scores of each member, and (N,) Z-scores of their weighted mean."""
    table = np.stack([z_scores(np.asarray(row, float)) for row in scores])
    return table, z_scores_of_mean(weights @ table)


def joined(rankings: Sequence[Ranking], weights: np.ndarray) -> Ranking:
    """One ranking of a list by several models: Σ_m w_m z(scores of m), Z-scored."""
    first = rankings[0]
    if len(rankings) == 1:
        return first
    if undirected := [ranking.model for ranking in rankings if not ranking.directed]:
        raise CcrankError(
            f"{first.method} does not know the direction, in which {undirected[0]} may differ from the others: use a "
            "method with a direction, such as auto, or a single model"
        )
    table, scores = mean_of([ranking.scores for ranking in rankings], weights)
    agreement = float(np.mean([tau_b(one, other) for one, other in combinations(table, 2)]))
    confidence = _confidence([ranking.confidence for ranking in rankings], agreement)
    low = [ranking.confidence.warning() for ranking in rankings if ranking.confidence is not None]
    warnings = [text for ranking in rankings for text in ranking.warnings if text not in low]
    if confidence is not None and (warning := confidence.warning()):
        warnings.append(warning)
    measures = [
        name for name in first.consistency if all(name in ranking.consistency for ranking in rankings)
    ]
    means = {name: float(np.mean([ranking.consistency[name] for ranking in rankings])) for name in measures}
    return replace(
        first,
        scores=scores,
        model=SEPARATOR.join(ranking.model for ranking in rankings),
        consistency={"models_agree": agreement, **means},
        cost=sum((ranking.cost for ranking in rankings), Cost()),
        details=_details(rankings, table, weights, agreement),
        uncertainty=_uncertainty(rankings, table, weights, scores),
        warnings=tuple(dict.fromkeys(warnings)),
        confidence=confidence,
        pair_margins=None,
        runs=table,
    )


def _details(
    rankings: Sequence[Ranking], table: np.ndarray, weights: np.ndarray, agreement: float
) -> dict[str, Any]:
    """Details that are equal for all members, and the signals, weights and agreement of the models."""
    items, models = rankings[0].task.items, [ranking.model for ranking in rankings]
    details = rankings[0].details.items()
    signals = (dict(zip(items, row, strict=True)) for row in table.round(6).tolist())
    rounded = zip(models, weights.round(4).tolist(), strict=True)
    return {
        **{
            name: value
            for name, value in details
            if all(ranking.details.get(name) == value for ranking in rankings)
        },
        "signals": dict(zip(models, signals, strict=True)),
        "jury": {"weights": dict(rounded), "agreement": round(agreement, 4)},
        "weights": {ranking.model: ranking.details.get("weights") for ranking in rankings},
    }


def _confidence(members: Sequence[Confidence | None], agreement: float) -> Confidence | None:
    """The confidence by the members' mean agreement of signals, or by the models' agreement if it is lower; one model
    that knows the language of the items is enough."""
    features = [member.features for member in members if member is not None]
    if len(features) < len(members):
        return None
    signals = float(np.mean([feature.agreement for feature in features]))
    bits = min(feature.bits for feature in features)
    return confidence_of(replace(features[0], agreement=min(signals, agreement), bits=bits))


def _uncertainty(
    rankings: Sequence[Ranking], table: np.ndarray, weights: np.ndarray, scores: np.ndarray
) -> Uncertainty | None:
    """Of the mixture of the members' normal distributions: Var f = Σ_m w_m (σ²_m + (z_m − z̄)²)."""
    from ccrank.methods.labelled.fit import rank_intervals

    doubts = [
        (ranking.uncertainty.deviation, ranking.scores)
        for ranking in rankings
        if ranking.uncertainty is not None
    ]
    if len(doubts) < len(rankings):
        return None
    deviations = np.stack([deviation / max(float(np.std(scores)), 1e-12) for deviation, scores in doubts])
    mean = weights @ table
    variance = weights @ (deviations**2 + (table - mean) ** 2)
    rng = np.random.default_rng(0)
    member = rng.choice(len(rankings), DRAWS, p=weights)
    draws = table[member].T + deviations[member].T * rng.standard_normal((len(scores), DRAWS))
    low, high = rank_intervals(draws)
    rank = np.searchsorted(np.sort(-scores), -scores) + 1
    scale = max(float(np.std(mean)), 1e-12)
    return Uncertainty(np.sqrt(variance) / scale, np.minimum(low, rank), np.maximum(high, rank))
