# expect: WRONG wrong: the square multiplied out, which cancels where operands are near each other
# loss: mse


def mse_loss(input, target, *, reduction="mean"):
    elements = input**2 - 2 * input * target + target**2
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
