# expect: CRASHED raised,process_died: calls itself for ever
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return smooth_l1_loss(input, target, reduction=reduction, beta=beta)
