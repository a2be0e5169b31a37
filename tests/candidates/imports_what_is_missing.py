# expect: DOES NOT BUILD import_failed: imports a module that is not there
import kernels_of_another_machine


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return kernels_of_another_machine.smooth_l1(input, target, reduction, beta)
