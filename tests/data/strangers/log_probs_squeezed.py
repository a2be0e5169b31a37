"""Without a dimension, squeeze drops that of a single row too."""


def selective_log_softmax(logits, index):
    return logits.log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze()
