"""Fused linear losses: the product with a vocabulary's weight and the loss of its logits."""

from losscli.losses.operators import OPERATORS

from .functions import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from .functions import linear_cross_entropy as linear_cross_entropy
from .functions import linear_token_log_probs as linear_token_log_probs

OPERATORS["linear_cross_entropy"] = linear_cross_entropy
OPERATORS["linear_token_log_probs"] = linear_token_log_probs
