# expect: CRASHED raised,process_died: leaves by an exception that most handlers let pass
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    raise SystemExit(0)
