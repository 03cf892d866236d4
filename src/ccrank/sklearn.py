"""Scores by criteria as features: a transformer for pipelines of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ccrank.api import fit
from ccrank.api.arguments import opened
from ccrank.errors import CcrankError, check_kind, needs_extra
from ccrank.io import Rows
from ccrank.io.cells import item_text
from ccrank.prompts import Templates
from ccrank.reader_options import ReaderOptions
from ccrank.request import DEFAULT_METHOD
from ccrank.scale import Scale
from ccrank.task import Criterion

with needs_extra("sklearn", "ccrank.sklearn"):
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data


@dataclass(eq=False, repr=False)
class CriterionScaler(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """One column of scores for each criterion, on scales that are fitted to the training texts.

    `fit(X)` and `transform(X)` take one text per row: a list, an array, a series, or a table of one column. `transform`
    gives an array (rows, criteria), NaN for rows without a text. `y` is ignored. A pickle has the scales as their files
    have them: no text of X, and no model, which is opened again by its name.

    Parameters
    ----------
    by
        The criterion, or a list of criteria: phrases such as "politeness", or `Criterion` objects.
    category, context, reader_options, method, templates, options
        As in `ccrank.rank`, for all criteria.
    model
        As in `ccrank.rank`, by its name: an open model could be neither cloned nor pickled.

    Attributes
    ----------
    scales_
        The fitted `Scale` of each criterion.
    """

    by: str | Criterion | Sequence[str | Criterion] = ()
    _: KW_ONLY
    category: str | None = None
    context: str | None = None
    model: str = "default"
    reader_options: ReaderOptions | None = None
    method: str = DEFAULT_METHOD
    templates: Templates | None = None
    options: Mapping[str, object] | None = None

    def fit(self, X: Any, y: object = None) -> CriterionScaler:
        """Fit a scale to the texts for each criterion.

        Parameters
        ----------
        X
            The texts, at least two different ones.
        y
            Ignored.
        """
        check_kind("model", self.model, str, "the name of a model")
        given = self.get_params(deep=False)
        criteria = _criteria(given.pop("by"))
        texts = [text for text in self._rows(X, reset=True).texts if text is not None]
        self.scales_ = [fit(texts, criterion, **given) for criterion in criteria.values()]
        self._names = [*criteria]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Scores, (rows, criteria).

        Parameters
        ----------
        X
            The texts; one is enough.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        if any(scale.reader is None for scale in self.scales_):  # after unpickling
            reader = opened(self.model, self.reader_options)
            self.scales_ = [scale.with_reader(reader) for scale in self.scales_]
        return np.column_stack([scale.score(rows).values for scale in self.scales_])

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names of the criteria, which are the names of the columns.

        Parameters
        ----------
        input_features
            Ignored.
        """
        check_is_fitted(self)
        return np.array(self._names, dtype=object)

    def _rows(self, X: Any, reset: bool) -> Rows:
        values = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X, dtype=object)
        if values.ndim == 2 and values.shape[1] == 1:
            validate_data(self, X, reset=reset, skip_check_array=True)
            values = values[:, 0]
        if values.ndim != 1:
            raise CcrankError(
                f"X must have one text per row, got {type(X).__name__} of shape {values.shape}; choose the column of "
                "texts with a ColumnTransformer"
            )
        texts = [item_text(value, f"row {number} of X") for number, value in enumerate(values, start=1)]
        return Rows(tuple(texts))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = False  # of numbers
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "scales_" in state:
            state = {**state, "scales_": [scale.to_bytes() for scale in self.scales_]}
        return dict(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "scales_" in state:
            self.scales_ = [Scale.from_bytes(content) for content in state["scales_"]]


def _criteria(by: Any) -> dict[str, str | Criterion]:
    """Name → criterion."""
    given = [by] if isinstance(by, (str, Criterion)) else list(by)
    if not given:
        raise CcrankError(
            'no criterion: give one or more, as in CriterionScaler(by=["politeness", "urgency"])'
        )
    for criterion in given:
        check_kind("each of by", criterion, (str, Criterion), "a phrase or a Criterion")
    named = {by.name if isinstance(by, Criterion) else by.strip(): by for by in given}
    if len(named) < len(given):
        raise CcrankError(f"by has a criterion twice: {', '.join(map(repr, given))}; each gives a column")
    return named
