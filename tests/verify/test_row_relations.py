"""`row_relations`: what it finds without the oracle, and what passes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from losscli.implementations import Implementation, find_implementation
from losscli.losses import ROW_FORMS
from losscli.losses.relations import Relations
from losscli.runs.records import FAIL, PASS
from losscli.verify.checks.row_relations import RELATIONS
from losscli.verify.selftest.wrong import find_wrong
from tests.verify.test_row_checks import make_case, results

SHIFT, SUM, ORDER, PARTS, ONE_HOT = (relation.name for relation in RELATIONS)


def of_first_class(right):
    """Return a formula to which the first logit of each row is added."""

    def wrong(input, *others, reduction, **settings):
        rows = right(input, *others, reduction="none", **settings) + 0.01 * input[:, 0]
        return {"none": lambda: rows, "sum": rows.sum, "mean": rows.mean}[reduction]()

    return wrong


def of_neighbours(right):
    """Return a formula in which classes that lie side by side attract each other."""

    def wrong(input, *others, reduction, **settings):
        rows = right(input, *others, reduction="none", **settings)
        rows = rows + 0.01 * (input[:, 1:] - input[:, :-1]).square().mean(1)
        return {"none": lambda: rows, "sum": rows.sum, "mean": rows.mean}[reduction]()

    return wrong


def larger(right):
    """Return a formula with a factor."""
    return lambda *operands, **settings: 1.01 * right(*operands, **settings)


@pytest.mark.parametrize(
    ("loss", "spoil", "reduction", "found"),
    [
        ("cross_entropy", of_first_class, "none", {SHIFT, SUM, ORDER}),
        ("weighted_cross_entropy", of_neighbours, "sum", {ORDER}),
        ("cross_entropy_with_probabilities", larger, "none", {ONE_HOT}),
    ],
)
def test_mistake_that_the_reference_shares_is_found(monkeypatch, loss, spoil, reduction, found):
    spec = ROW_FORMS[loss]
    wrong = spoil(spec.reference)
    monkeypatch.setitem(ROW_FORMS, loss, replace(spec, reference=wrong, functional=None))

    def bind(case):
        formula = case.spec.reference
        return lambda *operands: formula(*operands, reduction=case.reduction, **case.settings)

    same = Implementation("same", "the reference's own mistake", bind, held_to_oracle=True)
    case = make_case(loss, reduction=reduction, params=spec.resolve({}))

    value, relations = (results(case, same, check) for check in ("value", "row_relations"))

    assert {status for status, _ in value} == {PASS}
    ((status, text),) = relations
    assert status == FAIL
    assert {name for name in (SHIFT, SUM, ORDER, PARTS, ONE_HOT) if name in text} == found


@pytest.mark.parametrize(
    "mistake", ["softmax alone", "dropped classes", "gradient of ignored rows"]
)
def test_mistakes_of_the_self_test_break_a_relation(mistake):
    case = make_case("weighted_cross_entropy", reduction="none")

    ((status, _),) = results(case, find_wrong(mistake).implementation(), "row_relations")

    assert status == FAIL


def test_mean_that_counts_ignored_rows_is_not_that_of_its_parts():
    case = make_case("cross_entropy", reduction="mean")

    ((status, text),) = results(
        case, find_wrong("counts ignored rows").implementation(), "row_relations"
    )

    assert status == FAIL
    assert PARTS in text


SETTINGS = (
    {},
    {"ignore_index": 3, "label_smoothing": 0.1, "temperature": 1.1},
    {"softcap": 3.7, "z_loss": 0.1},
)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("loss", ROW_FORMS)
def test_relations_hold_for_the_reference(loss, reduction, dtype):
    for settings in SETTINGS:
        params = ROW_FORMS[loss].resolve(settings)
        case = make_case(loss, reduction=reduction, dtype=dtype, params=params)

        found = results(case, find_implementation("reference"), "row_relations")

        assert [status for status, _ in found] == [PASS], found


def test_forms_know_the_loss_of_class_numbers_that_they_are():
    assert {name: spec.relations.numbered for name, spec in ROW_FORMS.items()} == {
        "cross_entropy": "",
        "weighted_cross_entropy": "",
        "cross_entropy_with_probabilities": "cross_entropy",
        "weighted_cross_entropy_with_probabilities": "weighted_cross_entropy",
    }


def test_a_loss_that_names_no_relations_has_the_mean_of_parts_alone(monkeypatch):
    spec = ROW_FORMS["cross_entropy"]
    wrong = of_first_class(spec.reference)
    changed = replace(spec, reference=wrong, functional=None, relations=Relations())
    monkeypatch.setitem(ROW_FORMS, "cross_entropy", changed)
    case = make_case("cross_entropy", reduction="none", params=spec.resolve({}))

    found = results(case, find_implementation("reference"), "row_relations")

    assert [status for status, _ in found] == [PASS]


@pytest.mark.parametrize("off", [0.9, 1.1])
def test_answers_may_differ_by_twice_the_error_of_one(off):
    """The bar of a row in float32 is 4 ulp, and what a sum of its classes may lose."""
    from losscli.truth.problem import Problem
    from losscli.truth.related import judge_pair, scale_of
    from losscli.verify.checks.row_relations import relations_case

    problem = Problem.of(relations_case(make_case("cross_entropy", reduction="none")))
    loss = problem.oracle.case.spec.reference(
        *problem.operands.values(), reduction="none", **problem.case.params
    )
    scale = torch.full_like(scale_of(problem, "loss", problem.usual), 16.0)
    bar = 4 + 131**0.5 / 2
    other = loss.double() + 2 * off * bar * 16 * torch.finfo(torch.float32).eps

    verdict, _ = judge_pair(problem, "loss", loss, other, scale)

    assert verdict.status == (PASS if off < 1 else FAIL)
