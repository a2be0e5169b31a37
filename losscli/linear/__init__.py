"""Losses of hidden states: the product with a vocabulary's weight and the loss of its logits."""

from losscli.losses import operators as _bound

from .functions import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from .functions import linear_cross_entropy as linear_cross_entropy
from .functions import linear_token_log_probs as linear_token_log_probs

for _function in (linear_cross_entropy, linear_token_log_probs):
    setattr(_bound, _function.__name__, _function)
