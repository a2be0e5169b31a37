"""What does not depend on the formula is tested on each run with a few losses alone."""

from losscli.losses import LOSSES, ROW_LOSSES
from tests.machinery import MACHINERY, ROW_MACHINERY

OTHERS = ({*LOSSES} - {*MACHINERY}, {*ROW_LOSSES} - {*ROW_MACHINERY})
FILES = ("test_formulas", "test_replaced_functions")
OF_EVERY_LOSS = {
    "test_operand_changed_in_place_before_backward_raises_or_does_not_matter",
    "test_parameters_of_kernels_match_the_registry",
    "test_losses_and_gradients_equal_the_references",
    "test_derivative_tests_pass",
    "test_modules_are_the_functions",
    "test_with_grad_returns_the_gradient",
}
"""Tests of formulas in other files, and of what each loss says for itself."""


def test_only_what_depends_on_the_formula_is_tested_of_every_loss(request):
    """Layouts, transforms, compilers and autocast take `few` or `square` of tests/parameters.py."""
    losses: dict[str, set[str]] = {}
    for item in request.session.items:
        is_of_kernels = item.path.parent.name == "kernels" or item.path.stem == "test_row_losses"
        is_later = item.get_closest_marker("slow") or item.get_closest_marker("gpu")
        if is_of_kernels and not is_later and item.path.stem not in FILES:
            given = getattr(item, "callspec", None)
            values = given.params.values() if given else ()
            test = getattr(item, "originalname", item.name)
            losses.setdefault(test, set()).update(each for each in values if isinstance(each, str))
    found = {test for test, of in losses.items() if any(others <= of for others in OTHERS)}
    assert found <= OF_EVERY_LOSS
