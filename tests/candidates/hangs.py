# expect: HANGS timeout: a loop without an end
# limits: call_seconds=3
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    while True:
        pass
