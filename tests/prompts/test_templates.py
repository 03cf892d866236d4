"""Templates as data: what they render, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccrank.errors import CcrankError
from ccrank.prompts import Piece, Prompt, Template, load_templates, option_labels
from ccrank.task import Criterion, Task

FORMS = ("causal", "masked", "encoder_decoder")
TASK = Task(Criterion("size", "larger", ("small", "large"), "country"), ("Chad", "Peru", "Fiji"), id="mine")


def render(templates, name, form="causal", task=TASK):
    """A prompt of the task by a template of any type."""
    if name.startswith("pair"):
        return templates.pair(task, 0, 1, form, name)
    if "{pole}" in templates[name].text:
        return templates.pole(task, "large", form, name)
    if "{options}" in templates[name].text:
        return templates.list(task, [0, 1, 2], (1,), form, name)
    return templates.single(task, 0, form, name)


def test_the_papers_prompts():
    """The three prompt types have the paper's wording, with the slot at the answer."""
    templates = load_templates()
    assert templates.pair(TASK, 1, 0).text == "Is Peru larger than Chad? _"
    assert templates.single(TASK, 2).text == "The size of Fiji is _"
    assert templates.list(TASK, [2, 0, 1], [1]).text == (
        'Order by size. Options: "A" Fiji, "B" Chad, "C" Peru. The correct ordering is: B, _'
    )
    assert templates.pair(Task(Criterion("size"), ("a", "b")), 0, 1).text == (
        "Is a more in terms of size than b? _"
    )


@pytest.mark.parametrize("form", FORMS)
def test_every_shipped_template_renders_for_every_form(form):
    """Each packaged template has one slot in every form, last for causal models, and its fields filled in."""
    templates = load_templates()
    for name in templates.by_name:
        if name == "context":
            continue
        prompt = render(templates, name, form)
        assert [piece.role for piece in prompt.pieces].count("slot") == 1
        assert "{" not in prompt.text
        assert prompt.task == "mine"
        if form == "causal":
            assert prompt.after == ()


texts = st.text(min_size=1).filter(lambda text: any(char.isalnum() for char in text))


@given(texts, texts, texts.map(str.strip), texts)
def test_what_a_user_writes_is_never_parsed(first, second, name, context):
    """Braces, quotes and field names in items, criterion or context come out as they went in."""
    try:
        task = Task(Criterion(name), (first, second), context)
    except CcrankError:
        return  # not two different items
    prompt = load_templates().pair(task, 0, 1)
    assert prompt.text == f"{context}\n\nIs {first.strip()} more in terms of {name} than {second.strip()}? _"
    assert [piece.text for piece in prompt.pieces if piece.role == "item"] == [first.strip(), second.strip()]
    assert [piece.text for piece in prompt.pieces if piece.role == "context"] == [context]
    assert all(name in piece.text for piece in prompt.pieces if piece.role == "criterion")


def test_the_slot_splits_a_prompt():
    """Pieces before and after the slot make up the prompt; filling it changes nothing else."""
    prompt = load_templates().single(TASK, 0, "masked")
    assert "".join(piece.text for piece in prompt.before) == "The size of Chad is "
    assert "".join(piece.text for piece in prompt.after) == "."
    filled = prompt.filled("large")
    assert filled.text == "The size of Chad is large."
    assert filled.pieces == prompt.pieces
    assert prompt.answer is None


def test_poles_and_category_have_defaults():
    """Without poles the words for the ends follow from the criterion, else are low and high; without category, item."""
    templates = load_templates(changes=["single={category} {item}: {low} or {high}? {slot}"])
    assert templates.single(TASK, 0).text == "country Chad: small or large? _"
    assert templates.single(Task(Criterion("size"), ("a", "b")), 0).text == "item a: small or large? _"
    assert templates.single(Task(Criterion("zest"), ("a", "b")), 0).text == "item a: low or high? _"


def test_lists_show_and_take_by_place():
    """Labels follow the order shown, and `chosen` are places in it, not items."""
    templates = load_templates(
        changes=["list={options} / {chosen}{slot}"],
    )
    assert templates.list(TASK, [1, 2], [1, 0]).text == '"A" Peru, "B" Fiji / B, A, _'
    many = Task(Criterion("size"), tuple(f"item{number}" for number in range(30)))
    text = templates.list(many, range(30)).text
    assert '"1" item0, "2" item1' in text
    assert '"30" item29' in text


def test_chosen_items_can_be_named(tmp_path):
    """A choice may be written as the item in place of its label: the item that was shown in that place."""
    path = tmp_path / "mine.toml"
    path.write_text('[list]\nchoice = "{label} {item}; "\n')
    text = load_templates(path).list(TASK, [2, 0, 1], [1, 0]).text
    assert text.endswith("The correct ordering is: B Chad; A Fiji; _")


@given(st.integers(0, 60))
def test_labels_are_distinct(count):
    """There are as many distinct labels as items: letters up to 26, then numbers."""
    labels = option_labels(count)
    assert len(labels) == len(set(labels)) == count
    assert all(label.isalpha() for label in labels) == (count <= 26)


def test_a_users_file_lies_over_the_shipped_ones(tmp_path):
    """A file changes what it names; a new text also replaces the wording of the other forms; changes come last."""
    path = tmp_path / "mine.toml"
    path.write_text(
        '[pair]\ntext = "{item_a} over {item_b}? {slot}"\n[new]\ntext = "{item}: {slot}"\n'
        '[single]\nmasked = "{item} {slot}!"\n'
    )
    templates = load_templates(path, ["new={item}; {slot}"])
    assert templates.pair(TASK, 0, 1, "masked").text == "Chad over Peru? _"
    assert templates["pair"].candidates == ("Yes", "No")
    assert templates.single(TASK, 0, "masked").text == "Chad _!"
    assert templates.single(TASK, 0).text == "The size of Chad is _"
    assert templates.single(TASK, 0, template="new").text == "Chad; _"
    # The shipped ones are as they were.
    assert load_templates().pair(TASK, 0, 1).text == "Is Chad larger than Peru? _"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[single]\ntext = "{item} is"', "needs {slot} exactly once"),
        ('[single]\ntext = "{slot} {slot}"', "needs {slot} exactly once"),
        ('[single]\ntext = "{slot} is {item}"', "must come last"),
        ('[single]\ntext = ""', "empty text"),
        ('[single]\ntext = "{thing} {slot}"', "unknown fields ['thing']"),
        ('[single]\ntext = "{item.upper} {slot}"', "unknown fields"),
        ('[single]\ntext = "{item!r} {slot}"', "plain names"),
        ('[single]\ntext = "{} {slot}"', "plain names"),
        ('[single]\ntext = "{item {slot}"', "cannot be parsed"),
        ('[single]\nmasked = "{item}"', "needs {slot} exactly once"),
        ("[single]\ntext = 3", "must be text"),
        ('[single]\nwords = "a"', "unknown keys ['words']"),
        ('[single]\ncandidates = "Yes"', "list of texts"),
        ('[single]\ncandidates = ["Yes", ""]', "list of texts"),
        ('[brandnew]\nmasked = "{slot}"', "has no text"),
        (
            '[list]\noption = "{labels}"',
            "unknown fields ['labels'] in '{labels}'; known are ['item', 'label']",
        ),
        ('[poles]\nexemplar = "a {high} {category}"', "known are ['category', 'pole']"),
        ('[context]\ntext = "Read this."', "needs {context} exactly once"),
        ('single = "text"', "must be a table"),
        ("[single", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, table, message):
    """A template that cannot work is refused when it is loaded, with what is wrong about it."""
    path = tmp_path / "mine.toml"
    path.write_text(table)
    with pytest.raises(CcrankError) as caught:
        load_templates(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("change", ["single", "single=", "single=  ", "=text {slot}"])
def test_changes_are_name_and_text(change):
    """A change on the command line has a name and a text."""
    with pytest.raises(CcrankError):
        load_templates(changes=[change])


def test_missing_files_templates_and_fields_are_named(tmp_path):
    """An absent file, an unknown template, a field that a prompt type lacks: each is said."""
    with pytest.raises(CcrankError, match=r"cannot read .*none\.toml"):
        load_templates(tmp_path / "none.toml")
    templates = load_templates(changes=["single={item_a} is {slot}"])
    with pytest.raises(CcrankError, match="no template 'pear'"):
        templates.pair(TASK, 0, 1, template="pear")
    with pytest.raises(CcrankError, match=r"uses \{item_a\}, which this type of prompt does not have"):
        templates.single(TASK, 0)


def test_double_braces_are_braces():
    """A template may contain literal braces."""
    assert load_templates(changes=["single={{{item}}} {slot}"]).single(TASK, 0).text == "{Chad} _"


def test_a_template_stands_by_itself():
    """A template is a value: made, compared and rendered without a file."""
    template = Template("own", "{item} is {slot}")
    prompt = template.render(
        TASK, {"item": [Piece("Chad", "item")]}, "causal", Template("context", "{context}")
    )
    assert prompt == Prompt((Piece("Chad", "item"), Piece(" is "), Piece("", "slot")), task="mine")


@pytest.mark.parametrize("form", ["masked", "encoder_decoder"])
def test_all_forms_of_a_template_say_the_same(form):
    """Masked and encoder-decoder models are asked in the causal wording, but for a full stop behind the slot."""
    templates = load_templates()
    other = Task(Criterion("age", "older", ("young", "old"), "tree"), ("oak", "elm", "fir"))
    for name in templates.by_name.keys() - {"context"}:
        for task in (TASK, other):
            asked = render(templates, name, form, task).text
            assert asked.removesuffix(".") == render(templates, name, task=task).text


def test_every_prompt_of_a_task_stands_behind_its_context():
    """Pairs, single items, lists, poles and exemplars: the text is the context and then the prompt without it."""
    templates = load_templates()
    told = replace(TASK, context="Fiji is an island.")
    for name in templates.by_name.keys() - {"context"}:
        assert render(templates, name, task=told).text == f"{told.context}\n\n{render(templates, name).text}"
    with_context, without = (templates.exemplar(task, "a very small country").text for task in (told, TASK))
    assert with_context == f"{told.context}\n\n{without}"


@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_labels_are_not_the_letters_of_the_items(count, random):
    """An option under a letter is never an item that another letter names: such lists have numbers."""
    order = random.sample(range(count), count)
    task = Task(Criterion("stance"), tuple(f"review {chr(65 + place)}" for place in range(count)))
    labels = option_labels(count, task.items)
    assert labels == tuple(str(number) for number in range(1, count + 1))
    text = load_templates().list(task, order, [0]).text
    assert f'"1" review {chr(65 + order[0])}, "2" review {chr(65 + order[1])}' in text
    assert '"A"' not in text
    mixed = [*task.items, "review 1"]
    assert option_labels(count + 1, mixed)[0] == "A"
    assert option_labels(2, ["Louis I", "Edward V"]) == ("A", "B")
