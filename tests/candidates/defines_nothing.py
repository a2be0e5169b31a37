# expect: DOES NOT BUILD nothing_to_judge: a helper, and no loss
def reduce(elements, reduction):
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
