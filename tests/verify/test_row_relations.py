"""`row_relations`: what it finds without the oracle, and what passes it."""

from dataclasses import replace

import pytest
import torch

from losscli.implementations import Implementation, find_implementation
from losscli.losses import ROW_FORMS
from losscli.losses.fields import Relations
from losscli.losses.formulas import reduce
from losscli.runs.records import FAIL, PASS, WARN
from losscli.verify.checks import CHECKS
from losscli.verify.checks.row_relations import RELATIONS
from tests.parameters import few
from tests.verify.judging import find_wrong, put
from tests.verify.test_row_checks import make_case, results

SHIFT, SUM, ORDER, PARTS, ONE_HOT, MIRROR, BEYOND = RELATIONS


def of_first_class(right):
    """Return a formula to which the first logit of each row is added."""

    def wrong(input, *others, reduction, **settings):
        rows = right(input, *others, reduction="none", **settings) + 0.01 * input[:, 0]
        return reduce(rows, reduction)

    return wrong


def of_neighbours(right):
    """Return a formula in which classes that lie side by side attract each other."""

    def wrong(input, *others, reduction, **settings):
        rows = right(input, *others, reduction="none", **settings)
        rows = rows + 0.01 * (input[:, 1:] - input[:, :-1]).square().mean(1)
        return reduce(rows, reduction)

    return wrong


def larger(right):
    return lambda *operands, **settings: 1.01 * right(*operands, **settings)


def one_sided(right):
    """Return a formula whose mixture has other parts than it was asked for."""

    def wrong(*operands, beta, **settings):
        return right(*operands, beta=0.4, **settings)

    return wrong


def related(case, implementation, check):
    """Return the results of a check in a run that has all losses."""
    beside = {implementation.name: tuple(ROW_FORMS)}
    found = put(case, implementation, checks=[check], beside=beside)
    return [(result.status, f"{result.check}: {result.reason}") for result in found]


@pytest.mark.parametrize(
    ("loss", "spoil", "reduction", "found"),
    [
        ("cross_entropy", of_first_class, "none", {SHIFT, SUM, ORDER}),
        ("weighted_cross_entropy", of_neighbours, "sum", {ORDER}),
        ("cross_entropy_with_probabilities", larger, "none", {ONE_HOT}),
        ("masked_total_variation", of_first_class, "none", {SHIFT, SUM, ORDER, MIRROR}),
        ("js_divergence", one_sided, "sum", {MIRROR}),
        ("kl_divergence", larger, "mean", {MIRROR}),
        ("masked_soft_cross_entropy", larger, "none", {BEYOND}),
        ("triplet_margin", of_neighbours, "mean", {ORDER}),
        ("cosine_similarity", of_neighbours, "none", {ORDER, MIRROR}),
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
    value, relations = (related(case, same, check) for check in ("value", "row_relations"))
    assert {status for status, _ in value} == {PASS}
    ((status, text),) = relations
    assert status == FAIL
    assert {name for name in RELATIONS if name in text} == found


FOUND = [
    ("softmax alone", "weighted_cross_entropy", "none", {}, ""),
    ("dropped classes", "weighted_cross_entropy", "none", {}, ""),
    ("gradient of ignored rows", "weighted_cross_entropy", "none", {}, ""),
    ("counts ignored rows", "cross_entropy", "mean", {}, PARTS),
    ("one softmax alone", "masked_kl_divergence", "mean", {"params": {"temperature": 1.3}}, SUM),
]


@pytest.mark.parametrize(("mistake", "loss", "reduction", "changes", "relation"), FOUND)
def test_mistakes_of_the_self_test_break_a_relation(mistake, loss, reduction, changes, relation):
    case = make_case(loss, reduction=reduction, **changes)
    ((status, text),) = results(case, find_wrong(mistake), "row_relations")
    assert status == FAIL
    assert relation in text


SETTINGS = (
    {},
    {"ignore_index": 3, "label_smoothing": 0.1, "temperature": 1.1},
    {"softcap": 3.7, "z_loss": 0.1},
    {"beta": 0.3, "margin": 0.7, "eps": 1e-3, "p": 1.0},
)


@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [(dtype, "none") for dtype in ("float32", "float64", "float16", "bfloat16")]
    + [("float32", "mean"), ("bfloat16", "mean"), ("float32", "sum")],
)
@pytest.mark.parametrize("loss", few(ROW_FORMS))
def test_relations_hold_for_the_reference(loss, reduction, dtype):
    spec = ROW_FORMS[loss]
    if reduction not in spec.reductions:
        pytest.skip(f"{loss} has no such reduction")
    for params in {tuple(spec.resolve(settings).items()) for settings in SETTINGS}:
        case = make_case(loss, reduction=reduction, dtype=dtype, params=dict(params))
        found = related(case, find_implementation("reference"), "row_relations")
        assert [status for status, _ in found] == [PASS], found


def test_forms_know_the_loss_of_class_indices_that_they_are():
    numbered = {name: spec.relations.numbered for name, spec in ROW_FORMS.items()}
    assert {name: other for name, other in numbered.items() if other} == {
        "cross_entropy_with_probabilities": "cross_entropy",
        "weighted_cross_entropy_with_probabilities": "weighted_cross_entropy",
    }


def test_mirrors_are_forms_and_their_mirrors_are_the_loss():
    for name, spec in ROW_FORMS.items():
        mirror, distance = spec.relations.mirror, spec.relations.distance
        assert not mirror or ROW_FORMS[mirror].relations.mirror == name
        assert not distance or ROW_FORMS[distance].names == spec.names


def test_a_mirror_that_the_run_does_not_have_is_not_called(monkeypatch):
    wrong = larger(ROW_FORMS["reverse_kl_divergence"].reference)
    spec = replace(ROW_FORMS["reverse_kl_divergence"], reference=wrong)
    monkeypatch.setitem(ROW_FORMS, spec.name, spec)
    case, reference = make_case("kl_divergence"), find_implementation("reference")
    alone, beside = (check(case, reference, "row_relations") for check in (results, related))
    assert [status for status, _ in alone] == [PASS]
    assert [status for status, _ in beside] == [WARN]  # PyTorch's own formula is no better


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

    problem = Problem.of(
        CHECKS["row_relations"].adapt(make_case("cross_entropy", reduction="none"))
    )
    loss = problem.oracle.case.spec.reference(
        *problem.operands.values(), reduction="none", **problem.case.params
    )
    scale = torch.full_like(problem.scale_of("loss", problem.usual), 16.0)
    bar = 4 + 131**0.5 / 2
    other = loss.double() + 2 * off * bar * 16 * torch.finfo(torch.float32).eps
    outcome, _ = problem.judge_pair("loss", loss, other, scale)
    assert outcome.status == (PASS if off < 1 else FAIL)
