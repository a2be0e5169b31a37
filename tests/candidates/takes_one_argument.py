# expect: DOES NOT BUILD signature: takes no target
def smooth_l1_loss(input, *, reduction="mean", beta=1.0):
    return input.abs().mean()
