# expect: DOES NOT BUILD build_failed: an error in C++
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    "does_not_build",
    "double loss(double input, double target) { return inptu - target; }",
    functions=["loss"],
    no_implicit_headers=True,
    with_pytorch_error_handling=False,
)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return extension.loss(input, target)
