"""Checks of extreme values of rows and hidden states, and of invalid class indices."""

from functools import partial

from losscli.implementations.errors import SubjectError
from losscli.implementations.requests import Forward
from losscli.implementations.subject import Subject
from losscli.losses import CLASS_INDICES, HIDDEN_STATE, ROW
from losscli.truth.distances import Errors
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Cost, Tally, check, paths
from losscli.verify.geometry import geometry_of
from losscli.verify.geometry.geometry import of_shape


def _is_limit(variant: str, errors: Errors | None) -> bool:
    # The largest logits of training, whose rounding costs gradients digits.
    mild = "logits around 100" in variant and errors is not None and errors.ulp < 1024
    # These do not occur in training.
    beyond = ("infinity", "NaN", "of zeros", "1e4", "short vectors", "thousands")
    return mild or any(each in variant for each in beyond)


@check(
    place=45,
    facet="extreme_values",
    catches="exponentials that overflow, also where all logits are large, masked rows that become "
    "NaN, confident rows whose loss loses all digits, a mean that counts ignored rows, gradients "
    "of ignored rows",
    advice="Subtract the largest logit before the exponential, and support classes of -inf; leave "
    "ignored rows out of the loss, its mean and all gradients.",
    formerly=("row_values", "linear_values"),
    cost=Cost.QUICK,
    adapt=lambda case: geometry_of(case).for_values(case),
    units=(ROW, HIDDEN_STATE),
    limits=_is_limit,
)
def extreme_values(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check rows, and hidden states with weights, with extreme values.

    One class far above or below the others, logits around 1e4, ties, equal logits, minus infinity
    for all classes but one; vectors of zeros, short and long vectors, equal or opposite operands,
    each in rows of 131 and of 1,031 numbers; log-probabilities of some classes that sum up to more
    than 1, or of only one class; ignored or masked rows (none, the first, every second, all but
    one, all); hidden states of zeros.
    """
    tally.any_for_nan = True
    tally.judge_variants(problem, subject, geometry_of(problem.case).extreme_values(problem))


ROW_OF_WRONG = 4


@check(
    place=160,
    facet="inputs",
    catches="a read beyond the row that is returned as a loss",
    advice="Check that a target is a valid class before you use it as an index.",
    formerly=("wrong_targets",),
    pass_="forward",
    adapt=of_shape((7, 37), scale=1.0),
    units=(ROW, HIDDEN_STATE),
    asks=lambda case: any(operand.kind == CLASS_INDICES for operand in case.spec.operands),
    needs="losses of class indices",
)
def out_of_range_classes(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check class indices that are out of range.

    On a CPU each has to raise an error, like PyTorch's loss, and the next call has to be right. On
    a GPU, where PyTorch's assertion makes the device unusable for the process, losscli's own
    kernels have to give NaN for the row.
    """
    name = next(o.name for o in problem.case.spec.operands if o.kind == CLASS_INDICES)
    if problem.case.device == "cpu" or subject.implementation.held_to_oracle:
        for number in (-1, problem.case.classes, problem.case.classes + 2**20):
            target = problem.operands[name].clone()
            target[ROW_OF_WRONG] = number
            wrong = problem.variant(str(number), partial(problem.like, {name: target}))
            for wrt in paths(problem).values():
                if text := _judge_refusal(wrong, subject, wrt):
                    tally.fail(text, f"{name} of {number}: ")
    tally.add(*problem.judge_loss(subject.send(Forward(problem.operands))), "after wrong targets: ")


def _judge_refusal(problem: Problem, subject: Subject, wrt: tuple[str, ...]) -> str:
    on_cpu = problem.case.device == "cpu"
    try:
        loss = subject.send(Forward(problem.operands, wrt))
    except SubjectError:
        return "" if on_cpu else "expected NaN for the row, got an error"
    if on_cpu:
        return "expected an error, got none"
    # Of several values of a row, the first.
    row = (loss[..., ROW_OF_WRONG] if problem.case.reduction == "none" else loss).flatten()[0]
    return "" if bool(row.isnan()) else f"expected NaN for the row, got {float(row):.9g}"
