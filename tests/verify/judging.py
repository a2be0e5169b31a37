"""Puts a function or an implementation to a case, through the runner that all go through."""

from functools import partial

import torch

from losscli.implementations import Implementation
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from losscli.verify.selftest.wrong import WRONG

PLENTY = 2**40


def reference(case, *operands, **changes):
    options = {"reduction": case.reduction, **case.params, **changes}
    return case.spec.reference(*operands, **options)


def find_wrong(name):
    return next(wrong for wrong in WRONG if wrong.name == f"wrong:{name}")


def judge(case, function, *, checks=CHECKS, free=PLENTY):
    """Put a function, or a mistake of the self-test by its name, to a case through checks."""
    if isinstance(function, str):
        return put(case, find_wrong(function), checks=checks, free=free)
    implementation = Implementation("planted", "", lambda case: partial(function, case))
    return put(case, implementation, checks=checks, free=free)


def result_of(check, case, function):
    (result,) = judge(case, function, checks=[check])
    return result


def put(case, implementation, *, checks=CHECKS, free=PLENTY, **given):
    """Run the checks of an implementation that the device of a case can run."""
    trials = [(implementation, CHECKS[name]) for name in checks if not CHECKS[name].missing(case)]
    jobs = runner.split(case, trials, **given)
    return [result for job in jobs for result in runner.run(job, lambda device: free)]


class Into(torch.autograd.Function):
    """The loss of elements, written into memory that a function gives."""

    @staticmethod
    def forward(ctx, elements, give):
        return give(elements)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None
