"""A scale: its own items have their ranking's scores to the last bit, others the same steps with the same constants."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as content_of
from tiny import CAUSAL, FAMILIES, tiny_model, tiny_reader

from ccrank import Criterion, Probe, Reader, Scale, Task, fit, load_templates, rank, rank_tasks
from ccrank.cli.commands.rank_input import model_of_scale
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.signals import read_raw, read_signals
from ccrank.methods.registry import METHODS
from ccrank.models.prompter import Prompter
from ccrank.scale.stored import Known, Saved
from ccrank.util.tensors import VERSION

WORDS = ("old", "new", "tall", "red")
NAMES = tuple(sorted(f"{first} {second}" for first in WORDS for second in ("fox", "dog", "sea")))
TEXTS = tuple(sorted(f"{name} and then the quick brown fox jumps over the lazy dog again" for name in NAMES))
OTHERS = ("the quick brown fox", "a lazy dog", "blue glass", "stone", "the brown tower")
SIZE = Criterion("size", poles=("small", "large"))
LABELS = {NAMES[0]: 3.0, NAMES[3]: 1.0, NAMES[7]: 2.0, NAMES[9]: 5.0}
CONTEXT = "The old fox is large. The red sea is small."
QUICK = {"epochs": 5, "seeds": 2}


def unknown(scale: Scale) -> Scale:
    """The scale as it scores items that it was not fitted on."""
    return replace(scale, known=Known.none(), ranking=None)


def options_of(method: str) -> dict[str, object]:
    """Fewer steps for probes."""
    objective = METHODS[method].objective
    return QUICK if objective is not None and objective.loss is not None else {}


def cases() -> list[tuple[str, str, dict[str, object]]]:
    """Every method on one family and some on each; auto with and without labels and context on all that take it."""
    plain = [("llama", method, {}) for method in METHODS if METHODS[method].family != "supervised"]
    plain = [case for case in plain if case[1] not in ("first-stage", "query-likelihood")]
    some = [("llama", "auto", {"labels": LABELS}), ("llama", "auto", {"context": CONTEXT})]
    some.append(("llama", "auto", {"labels": LABELS, "context": CONTEXT}))
    some += [(family, "auto", {}) for family in FAMILIES if family not in ("llama", "marian")]
    methods = [method for _, method, _ in plain if method != "auto"]
    return plain + some + [(family, one, {}) for at, family in enumerate(FAMILIES) for one in methods[at::8]]


@pytest.mark.parametrize(("family", "method", "more"), cases())
def test_a_ranking_is_a_scale_applied_to_its_own_items(family, method, more, tmp_path):
    """`rank` is `fit().rank`, and so is the scale from its file, to the last bit and in any order of the items; other
    items are scored one by one as all together, or refused with a reason."""
    reader = tiny_reader(family)
    given = {"model": reader, "method": method, "options": options_of(method), **more}
    try:
        expected = rank(NAMES, SIZE, **given)
    except CcrankError as error:  # not every family takes every method
        with pytest.raises(CcrankError, match=re.escape(str(error))):
            fit(NAMES, SIZE, **given)
        return
    scale = fit(NAMES, SIZE, **given)
    scale.save(tmp_path / "x.scale")
    again = Scale.load(tmp_path / "x.scale", reader)
    for found in (scale.rank(NAMES), again.rank(NAMES)):
        assert np.array_equal(found.scores, expected.scores)
        assert found.items == expected.items
        assert (found.directed, found.warnings) == (expected.directed, expected.warnings)
        doubts = [one.uncertainty for one in (found, expected)]
        if doubts[1] is not None:
            for name in ("deviation", "rank_low", "rank_high"):
                assert np.array_equal(getattr(doubts[0], name), getattr(doubts[1], name))
    assert again.rank(NAMES[::-1]).items == expected.items
    assert np.array_equal(scale(NAMES[3:5]), expected.scores[3:5])
    if not METHODS[method].scores_others:
        with pytest.raises(CcrankError, match=r"cannot score 'the quick brown fox'|scores no item by itself"):
            scale.score(OTHERS)
        return
    together = scale.score(OTHERS)
    assert np.array_equal(together.values, again(OTHERS))
    assert (together.deviation is not None) == (expected.uncertainty is not None)
    for place in (0, 4):
        assert scale(OTHERS[place : place + 1])[0] == pytest.approx(together.values[place], abs=1e-4)
    both = scale.rank([*OTHERS, NAMES[0]])
    assert both.scores[-1] == expected.scores[0]
    assert np.array_equal(both.scores[:-1], scale([*OTHERS, NAMES[0]])[:-1])


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].family == "supervised"])
def test_a_supervised_probe_scores_other_items(method):
    """Probes that are trained on gold of a task give a scale of that task."""
    task = Task(SIZE, NAMES, values=tuple(map(float, range(len(NAMES)))))
    scale = fit(task, model=tiny_reader("llama"), method=method, options=QUICK)
    [expected] = rank_tasks([task], tiny_reader("llama"), method, options=QUICK)
    assert np.array_equal(scale(NAMES), expected.scores)
    if METHODS[method].scores_others:
        assert np.ptp(scale(OTHERS)) > 0
        np.testing.assert_allclose(unknown(scale)(NAMES), expected.scores, atol=1e-5)
    else:
        found = scale.rank(OTHERS)  # pairs within the other list
        assert sorted(found.items) == sorted(OTHERS)


@pytest.mark.parametrize("items", [NAMES, TEXTS])
@pytest.mark.parametrize("context", [None, CONTEXT])
@pytest.mark.parametrize("headless", [False, True])
@pytest.mark.parametrize("method", ["auto", "poles", "likelihood", "axis", "margin", "pca", "frequency"])
def test_constants_give_the_lists_own_items_their_scores(method, items, context, headless):
    """What scores other items gives those of the list the scores of their ranking, where an item's score there does not
    come from the others (`anchor=no`)."""
    if headless and method in ("poles", "likelihood", "frequency"):
        return
    reader = tiny_reader("llama", headless=headless)
    options = {"anchor": False} if method == "auto" else options_of(method)
    scale = fit(items, SIZE, model=reader, method=method, options=options, context=context)
    for chosen in (slice(None), slice(4, 5)):
        found, doubt = unknown(scale).score(items[chosen]), scale.ranking.uncertainty
        np.testing.assert_allclose(found.values, scale.ranking.scores[chosen], atol=1e-4)
        assert (found.deviation is None) == (doubt is None)
        if found.deviation is not None:
            np.testing.assert_allclose(found.deviation, doubt.deviation[chosen], rtol=1e-3)


@pytest.mark.parametrize("context", [None, CONTEXT])
def test_an_item_takes_one_pass(context, monkeypatch):
    """All prompts of a new item are one reading and one pass, with the numbers of a whole list's reading."""
    reader = tiny_reader("llama")
    scale = fit(NAMES, SIZE, model=reader, context=context)
    together = scale.score(OTHERS).values
    backbone, passes = type(reader.engine.backbone), []
    run = backbone.rows
    monkeypatch.setattr(backbone, "rows", lambda *given: passes.append(1) or run(*given))
    for item, score in zip(OTHERS, together, strict=True):
        passes.clear()
        assert scale.score([item]).values[0] == pytest.approx(score, abs=1e-4)
        assert passes == [1]


@pytest.mark.parametrize(("by", "items"), [("politeness", TEXTS), ("weight", NAMES)])
def test_exemplars_written_for_a_criterion_are_part_of_the_scale(by, items):
    """Their probe and its weight; without them (exemplars=no) they are not."""
    for exemplars in (True, False):
        options = {"anchor": False, "exemplars": exemplars}
        scale = fit(items, by, model=tiny_reader("llama"), options=options)
        assert (scale.scorer.model.written is not None) == exemplars
        np.testing.assert_allclose(unknown(scale)(items), scale.ranking.scores, atol=1e-4)


@pytest.mark.parametrize("count", [12, 60])
def test_smoothing_predicts_a_new_item_from_the_list(count):
    """A new item is smoothed as the list smooths an item that it leaves out: by a ridge regression on the others, in
    the units of the predictions within the list; checked against the regressions written out."""
    reader, templates = tiny_reader("llama"), load_templates()
    items = tuple(sorted(f"{name} {number}" for name in NAMES for number in range(count // 12)))
    scale = fit(items, SIZE, model=reader)
    [read], _ = read_signals([Task(SIZE, items)], Prompter(reader, templates), with_states=True)
    states, anchors = read.states[0].astype(float), read.signals.total()
    new = scale.task.unchecked(OTHERS[:2], None)
    [raw], _ = read_raw([new], [scale.scorer.plan], Prompter(reader, templates))
    mean, deviation = states.mean(axis=0), states.std(axis=0)
    target = (anchors - anchors.mean()) / anchors.std()
    added = 0.0
    for layer in range(states.shape[1]):
        rows = (states[:, layer] - mean[layer]) / deviation[layer]
        own = (raw.states[0][:, layer] - mean[layer]) / deviation[layer]
        penalty = 3.0 * rows.shape[1] * np.eye(rows.shape[1])
        weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ target)
        left_out = []
        for index in range(count):
            others = np.delete(rows, index, axis=0)
            found = np.linalg.solve(others.T @ others + penalty, others.T @ np.delete(target, index))
            left_out.append(rows[index] @ found)
        added = added + (own @ weights - np.mean(left_out)) / np.std(left_out)
    expected = 0.5 * anchors.std() * added / states.shape[1]
    model = scale.scorer.model
    np.testing.assert_allclose(model.smoothing(raw.states[0]), expected, rtol=1e-4, atol=1e-5)
    plain = replace(model, smoothing=None)(raw)
    np.testing.assert_allclose(scale(OTHERS[:2]), plain + expected, atol=1e-5)


@pytest.mark.parametrize("context", [None, CONTEXT])
def test_labels_move_new_items_as_the_posterior_does(context):
    """Items of the list without labels, whose label-free score is not smoothed, would get their posterior mean and
    deviation again."""
    options = {"anchor": False}
    scale = fit(NAMES, SIZE, model=tiny_reader("llama"), labels=LABELS, options=options, context=context)
    others = [index for index, item in enumerate(NAMES) if item not in LABELS]
    found = unknown(scale).score(NAMES)
    np.testing.assert_allclose(found.values[others], scale.ranking.scores[others], atol=2e-3)
    np.testing.assert_allclose(
        found.deviation[others], scale.ranking.uncertainty.deviation[others], atol=2e-3
    )
    plain = fit(NAMES, SIZE, model=tiny_reader("llama"), options=options, context=context)
    assert np.abs(found.values - plain.ranking.scores).max() > 0.05
    ranked = scale.rank(OTHERS)
    assert (ranked.uncertainty.rank_low <= ranked.uncertainty.rank_high).all()


def test_a_frame_and_repeated_items():
    """Rows without an item have no score, equal items the same one, in the order of the rows."""
    import pandas as pd

    scale = fit(NAMES, SIZE, model=tiny_reader("llama"), method="poles")
    frame = pd.DataFrame({"text": [NAMES[2], None, OTHERS[0], f" {NAMES[2]} "], "n": [1, 2, 3, 4]})
    found = scale.score(frame, column="text")
    assert np.isnan(found.values[1])
    assert found.values[0] == found.values[3] == scale.ranking.scores[2]
    assert np.asarray(found).shape == (4,)
    assert len(scale) == len(NAMES)
    assert "poles" in repr(scale)


def test_a_file_has_no_text_of_items_and_no_other_model_takes_it(tmp_path):
    """What is published with a scale does not give the list away; weights are compared by their hash, not by name."""
    secret = [f"{name} Zanzibar" for name in NAMES]
    scale = fit(secret, SIZE, model=tiny_reader("llama"), labels={secret[0]: 1.0, secret[5]: 2.0})
    path = tmp_path / "x.scale"
    scale.save(path)
    assert b"Zanzibar" not in path.read_bytes()
    with pytest.raises(CcrankError, match=r"fitted on the model tiny-llama \(weights .*not on tiny-gpt2"):
        Scale.load(path, tiny_reader("gpt2"))
    with pytest.raises(CcrankError, match="without the chat template"):
        Scale.load(path, Reader(tiny_model("llama"), chat=True))


def test_a_file_does_not_name_the_server_that_gets_texts_and_key(tmp_path, monkeypatch):
    """A scale from elsewhere may name any server: none is asked unless the user names it."""
    asked = []
    monkeypatch.setattr("urllib.request.OpenerDirector.open", lambda *_, **__: asked.append(1))
    scale = fit(NAMES, SIZE, model=tiny_reader("llama"))
    path, notes = tmp_path / "x.scale", replace(scale.notes, model="openai:http://127.0.0.1:9/v1#evil")
    replace(scale, notes=notes).save(path)
    with pytest.raises(
        CcrankError, match=r"fitted on openai:http://127.0.0.1:9/v1#evil.*name it with --model"
    ):
        Scale.load(path).score(["a secret"])
    with pytest.raises(CcrankError, match="name it with --model"):
        model_of_scale(Scale.load(path), "default", None)
    named = "openai:http://127.0.0.1:9/v1#evil"
    assert model_of_scale(Scale.load(path), named, None)[0] == named
    assert not asked


def test_damaged_files_are_refused(tmp_path):
    """Truncated, with numbers that are none, of another version or kind, with arrays that do not fit: an error that
    says what to do."""
    scale = fit(NAMES, SIZE, model=tiny_reader("llama"), labels=LABELS)
    path, whole = tmp_path / "x.scale", scale.to_bytes()
    for length in (0, 7, 100, len(whole) - 5):
        path.write_bytes(whole[:length])
        with pytest.raises(CcrankError, match="not a complete safetensors file"):
            Scale.load(path)
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])["__metadata__"]
    tensors = tensors_of(whole)
    for name, tensor in tensors.items():
        if name == "version":
            continue
        for changed in (np.full_like(tensor, np.nan) if tensor.dtype.kind == "f" else None, tensor[:-1]):
            if changed is None or not changed.size or changed.shape == (0, 1):
                continue
            path.write_bytes(content_of({**tensors, name: np.ascontiguousarray(changed)}, header))
            with pytest.raises(CcrankError, match="damaged"):
                Scale.load(path, tiny_reader("llama"))
    about = json.loads(header["about"])
    del about["notes"]["criterion"]["name"]
    for change, message in (
        ({"version": "9"}, "has version '9'"),
        ({"kind": "Probe"}, "holds a 'Probe'"),
        ({"about": json.dumps(about)}, "damaged"),
        ({"about": "[" * 100_000}, "damaged"),
    ):
        path.write_bytes(content_of(tensors, header | change))
        with pytest.raises(CcrankError, match=message):
            Scale.load(path)


def with_changes(scale, tensors=None, **changes):
    """The content of a scale's file, with other tensors, or values at "part/part" of its JSON."""
    whole = scale.to_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
    about = json.loads(header["about"])
    for path, value in changes.items():
        *parts, last = path.split("/")
        inner = about
        for part in parts:
            inner = inner[part]
        inner[last] = value
    return content_of({**tensors_of(whole), **(tensors or {})}, header | {"about": json.dumps(about)})


@pytest.mark.parametrize(
    ("method", "by", "change"),
    [
        ("auto", SIZE, {"notes/consistency": {"signals_agree": "high"}}),
        ("auto", SIZE, {"scorer/plan/layers": [1]}),
        ("auto", SIZE, {"scorer/plan/layers": [10**9]}),
        ("auto", SIZE, {"scorer/plan/template": "none"}),
        ("auto", SIZE, {"tensors": {".scorer.model.smoothing.weights": np.zeros((1, 2, 5))}}),
        ("auto", "weight", {"tensors": {".scorer.model.written.weights": np.zeros((2, 2, 1))}}),
        ("frequency", SIZE, {"scorer/method": "auto"}),
        ("frequency", SIZE, {"scorer/method": "none"}),
        ("frequency", SIZE, {"scorer/options": {"none": 1}}),
        ("frequency", SIZE, {"scorer/options": {"lead": ["a"]}}),
    ],
)
def test_what_does_not_fit_the_model_is_refused(method, by, change):
    """A file that is well-formed, but of other layers, states or options, is an error before or as items are scored."""
    reader = tiny_reader("llama")
    content = with_changes(fit(NAMES, by, model=reader, method=method), **change)
    with pytest.raises(CcrankError):
        Scale.from_bytes(content, reader).score(OTHERS)


def test_a_header_is_bounded(monkeypatch):
    """JSON of many MB is refused before it is parsed, and is not written."""
    monkeypatch.setattr("ccrank.util.tensors.MAX_HEADER_BYTES", 100_000)
    scale = fit(NAMES, SIZE, model=tiny_reader("llama"))
    with pytest.raises(CcrankError, match=r"not a complete safetensors file: its header takes \d"):
        Scale.from_bytes(with_changes(scale, **{"notes/details": {"x": [[]] * 30_000}}))
    notes = replace(scale.notes, context="word " * 30_000)
    with pytest.raises(CcrankError, match="MB of texts, such as a context"):
        replace(scale, notes=notes).to_bytes()


def test_a_scale_of_causal_models_agrees_over_precisions():
    """The hash of the weights decides, whatever the precision they are read in."""
    from ccrank.scale.stored import identity_of

    reader = tiny_reader(CAUSAL[0])
    loaded = replace(reader.loaded, identity="0123456789abcdef-float32", weights={"sha256": "x"})
    other = replace(loaded, identity="0123456789abcdef-bfloat16")
    assert identity_of(Reader(loaded)) == identity_of(Reader(other)) == "0123456789abcdef"


def test_threads_share_a_scale_and_a_model():
    """Several threads that score on one scale at once get the scores of one thread; so do rankings beside them."""
    from concurrent.futures import ThreadPoolExecutor

    reader = tiny_reader("llama")
    scale = fit(NAMES, SIZE, model=reader)
    expected, ranked = scale(OTHERS), rank(NAMES, SIZE, model=reader).scores
    fresh = fit(NAMES, SIZE, model=reader)  # its scorer is made by the first thread that needs it
    with ThreadPoolExecutor(6) as pool:
        scores = [pool.submit(fresh, OTHERS) for _ in range(12)]
        rankings = [pool.submit(rank, NAMES, SIZE, model=reader) for _ in range(4)]
        for one in scores:
            np.testing.assert_allclose(one.result(), expected, atol=1e-4)
        for one in rankings:
            np.testing.assert_allclose(one.result().scores, ranked, atol=1e-4)


def fields_of(kind, seen):
    """The fields of a class and of all classes that it is made of, as they are written."""
    if dataclasses.is_dataclass(kind) and kind not in seen:
        seen[kind] = [f"{kind.__name__}.{field.name}: {field.type}" for field in dataclasses.fields(kind)]
        for hint in typing.get_type_hints(kind).values():
            fields_of(hint, seen)
    for inner in typing.get_args(kind):
        fields_of(inner, seen)
    return sorted(line for lines in seen.values() for line in lines)


def test_a_file_of_other_fields_has_another_version():
    """If this fails, fields of what is saved have changed: raise `VERSION` and write the new digest beside it."""
    lines = fields_of(Saved, {}) + fields_of(Probe, {})
    assert "Units.mean: Any" in lines
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert (VERSION, digest) == ("4", "ecd8d0a81547c4f2")
