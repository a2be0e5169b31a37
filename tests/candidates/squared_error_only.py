# expect: WRONG wrong: squared error everywhere, which uniform inputs in [0, 1) do not show
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = 0.5 * (input - target) ** 2 / beta
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
