"""Vocabulary-parallel losses: each rank passes its shard of the classes; see docs/sharded.md."""

from functools import partial
from importlib import import_module

from losscli.operators.registration import when_imported

from .functions import cross_entropy as cross_entropy
from .functions import kl_divergence as kl_divergence
from .functions import reverse_kl_divergence as reverse_kl_divergence
from .functions import token_log_probs as token_log_probs
from .hidden_states import linear_cross_entropy as linear_cross_entropy
from .hidden_states import linear_token_log_probs as linear_token_log_probs

when_imported("torch.distributed.tensor", partial(import_module, f"{__name__}.dtensors"))
