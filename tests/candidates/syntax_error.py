# expect: DOES NOT BUILD syntax: no Python
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return (input - target
