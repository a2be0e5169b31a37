# expect: CRASHED raised: an exception in each call
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    raise ValueError("expected a tensor of half as many rows")
