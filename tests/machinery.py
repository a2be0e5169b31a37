"""The losses with which everything that does not depend on the formula is tested."""

MACHINERY = ("hinge", "mse", "smooth_l1")
"""Loops, layouts, autograd, transforms, streams and checks are templates over the formula, so three
losses test them for all: hinge has a kink, a parameter and a target of one row; mse has no
parameter and a function of PyTorch's own beside its reference; smooth_l1 has two kinks. With the
whole registry the tests would take as many times longer as it has losses. What does depend on the
formula is tested for each loss by ``tests/kernels/test_formulas.py``.
"""
ROW_MACHINERY = ("cross_entropy", "kl_divergence", "token_log_probs", "triplet_margin")
"""The same of losses over rows: one of class indices, with a weight of each, ignored rows and most
of the parameters; one of two sets of logits, both with a gradient, and a mask; one that reads an
element of each row and has no reduction; one of three operands, made of norms, with a kink.
"""
