"""The transformer for scikit-learn and the accessors of frames: the scores and orders of `fit` and `rank`."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import validate_data
from tiny import save_model, tiny_model

import ccrank
import ccrank.frames
from ccrank.errors import CcrankError, CcrankWarning
from ccrank.sklearn import CriterionScaler

NAMES = [f"{first} {second}" for first in ("old", "new", "tall", "red") for second in ("fox", "dog", "sea")]
OTHERS = ["the quick brown fox", "a lazy dog", "blue glass"]
SIZE = ccrank.Criterion("size", poles=("small", "large"))
BOTH = [SIZE, "height"]

pytestmark = pytest.mark.filterwarnings("ignore::ccrank.CcrankWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return str(save_model(tiny_model("llama", max_position_embeddings=512), folder))


class NumbersAsTexts(CriterionScaler):
    """The same transformer of the numbers that the checks of scikit-learn are made of: each row is a text."""

    def __init__(self, by="size", *, model="default"):
        super().__init__(by, model=model)

    def _rows(self, X, reset):
        X = validate_data(self, X, reset=reset, dtype="numeric", ensure_min_samples=2 if reset else 1)
        return super()._rows(np.array([" ".join(f"{value:.3f}" for value in row) for row in X]), reset)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.string = tags.input_tags.one_d_array = tags.input_tags.allow_nan = False
        return tags


EXCEPTIONS = {
    "check_fit_idempotent": "it allows 1e-9, and float32 readings of one prompt differ by 1e-7 with the others of a "
    "pass; test_fitting_again_gives_the_same allows that",
}
"""Checks that do not hold → why."""
with warnings.catch_warnings():
    warnings.simplefilter("ignore", SkipTestWarning)  # there are no checks of the values of texts
    CHECKS = [
        (kind, place, check)
        for kind in (CriterionScaler, NumbersAsTexts)
        for place, (_, check) in enumerate(estimator_checks_generator(kind("size")))
    ]


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        pytest.param(kind, check, id=f"{kind.__name__}-{place}-{check.func.__name__}")
        for kind, place, check in CHECKS
    ],
)
def test_it_passes_the_checks_of_scikit_learn(kind, check, model):
    """Those of texts by themselves, which are few; all others of numbers that are written as texts."""
    if check.func.__name__ in EXCEPTIONS:
        pytest.xfail(EXCEPTIONS[check.func.__name__])
    check(kind("size", model=model))


def test_most_checks_apply():
    """The checks are not skipped by a tag."""
    names = {check.func.__name__ for kind, _, check in CHECKS if kind is NumbersAsTexts}
    assert len(names) > 30
    assert {"check_transformer_general", "check_fit2d_predict1d", "check_estimators_pickle"} <= names


def test_fitting_again_gives_the_same(model):
    """A second fit to the same texts changes nothing but rounding."""
    scaler = CriterionScaler(BOTH, model=model)
    first = scaler.fit(NAMES).transform(OTHERS)
    np.testing.assert_allclose(scaler.fit(NAMES).transform(OTHERS), first, atol=1e-5)


def test_a_column_has_the_scores_of_a_scale(model):
    """Each column is what `fit(...).score` gives, of the training texts and of others, and of one alone."""
    scaler = CriterionScaler(BOTH, category="animal", model=model).fit(NAMES)
    for column, by in enumerate(BOTH):
        scale = ccrank.fit(NAMES, by, category="animal", model=model)
        np.testing.assert_allclose(scaler.transform(NAMES)[:, column], scale(NAMES), atol=1e-5)
        np.testing.assert_allclose(scaler.transform(OTHERS[:1])[:, column], scale(OTHERS)[:1], atol=1e-5)
    assert scaler.get_feature_names_out().tolist() == ["size", "height"]


@pytest.mark.parametrize(
    "given",
    [
        NAMES,
        tuple(NAMES),
        np.array(NAMES),
        np.array(NAMES)[:, None],
        pd.Series(NAMES),
        pd.DataFrame({"text": NAMES}),
        pl.Series(NAMES),
        pl.DataFrame({"text": NAMES}),
    ],
    ids=lambda given: f"{type(given).__module__.partition('.')[0]}-{type(given).__name__}-{np.ndim(given)}",
)
def test_texts_come_in_any_container(given, model):
    """Lists, arrays, series and tables of one column give the same scores."""
    scaler = CriterionScaler(SIZE, model=model)
    expected = scaler.fit(NAMES).transform(NAMES)
    np.testing.assert_allclose(scaler.fit(given).transform(given), expected, atol=1e-5)


def test_rows_without_a_text_have_no_score(model):
    """None, NaN and blanks give NaN, in a list as in a frame, and are not fitted to."""
    holes = [*NAMES, None, float("nan"), " "]
    expected = CriterionScaler(SIZE, model=model).fit_transform(NAMES)
    for given in (holes, pd.DataFrame({"text": holes})):
        found = CriterionScaler(SIZE, model=model).fit_transform(given)
        np.testing.assert_allclose(found[: len(NAMES)], expected, atol=1e-5)
        assert np.isnan(found[len(NAMES) :]).all()


def test_it_works_in_pipelines(model):
    """In a column transformer with pandas output, before a classifier, and under cross-validation."""
    frame = pd.DataFrame({"text": NAMES, "count": range(len(NAMES))}, index=[f"row {one}" for one in NAMES])
    columns = ColumnTransformer(
        [("scores", CriterionScaler(BOTH, model=model), "text")],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    found = columns.fit_transform(frame)
    assert found.columns.tolist() == ["size", "height", "count"]
    assert found.index.tolist() == frame.index.tolist()
    expected = CriterionScaler(BOTH, model=model).fit(NAMES).transform(NAMES)
    np.testing.assert_allclose(found[["size", "height"]], expected, atol=1e-5)
    classes = np.arange(len(NAMES)) % 2
    scores = cross_val_score(make_pipeline(columns, LogisticRegression()), frame, classes, cv=3)
    assert np.isfinite(scores).all()


def test_a_pickle_has_no_text_and_no_model(model):
    """What comes out of a pickle scores known and new items alike; a clone is not fitted."""
    scaler = CriterionScaler(BOTH, model=model).set_output(transform="pandas").fit(NAMES)
    content = pickle.dumps(scaler)
    assert NAMES[0].encode() not in content
    assert len(content) < 200_000
    again = pickle.loads(content)
    pd.testing.assert_frame_equal(again.transform(NAMES), scaler.transform(NAMES))
    pd.testing.assert_frame_equal(again.transform(OTHERS), scaler.transform(OTHERS), atol=1e-5)
    fresh = clone(scaler)
    assert fresh.get_params() == scaler.get_params()
    with pytest.raises(NotFittedError):
        fresh.transform(NAMES)


@pytest.mark.parametrize(
    ("given", "items", "message"),
    [
        ({"by": ()}, NAMES, "no criterion: give one or more"),
        ({"by": ["size", "size "]}, NAMES, "by has a criterion twice: 'size', 'size '"),
        ({"by": ["size", 3]}, NAMES, "each of by must be a phrase or a Criterion, not int"),
        ({"by": "size", "model": object()}, NAMES, "model must be the name of a model, not object"),
        ({"by": "size"}, [["a", "b"]], r"one text per row, got list of shape \(1, 2\)"),
        ({"by": "size"}, "a text", r"one text per row, got str of shape \(\)"),
        ({"by": "size"}, ["a", b"b"], "row 2 of X: an item is a text"),
    ],
)
def test_mistakes_are_named(given, items, message):
    """Before a model is loaded."""
    with pytest.raises(CcrankError, match=message):
        CriterionScaler(**{"model": "no-such-model", **given}).fit(items)


@pytest.mark.parametrize("library", [pd, pl])
def test_a_frame_ranks_itself(library, model):
    """`frame.ccrank.rank` is `ccrank.rank(frame).to_frame()`, with the same parameters."""
    frame = library.DataFrame({"name": NAMES, "count": range(len(NAMES))})
    found = frame.ccrank.rank(SIZE, column="name", model=model)
    expected = ccrank.rank(frame, SIZE, column="name", model=model).to_frame()
    assert list(found.columns) == list(expected.columns)
    assert found["name"].to_list() == expected["name"].to_list()
    np.testing.assert_allclose(found["score"].to_numpy(), expected["score"].to_numpy(), atol=1e-5)
    names = [*inspect.signature(ccrank.rank).parameters][1:]
    assert [*inspect.signature(frame.ccrank.rank).parameters] == names


def test_a_warning_points_at_the_caller(model):
    """Not at a module of ccrank, so that each call warns."""
    frame = pd.DataFrame({"name": [*NAMES, None]})
    calls = (
        lambda: frame.ccrank.rank("size", column="name", model=model, method="length"),
        lambda: ccrank.rank(frame, "size", column="name", model=model, method="length"),
        lambda: CriterionScaler("size", model=model, method="length").fit(NAMES),
    )
    for call in calls:
        with pytest.warns(CcrankWarning) as caught:
            call()
        assert {one.filename for one in caught} == {__file__}


def test_the_accessors_are_registered_on_request():
    """ccrank by itself imports neither library of frames, nor scikit-learn."""
    code = (
        "import sys, ccrank; ccrank.rank; assert not {'pandas', 'polars', 'sklearn'} & {*sys.modules}; "
        "import pandas; assert not hasattr(pandas.DataFrame, 'ccrank'); "
        "import ccrank.frames; assert hasattr(pandas.DataFrame, 'ccrank')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
