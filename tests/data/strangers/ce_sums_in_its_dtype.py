"""Adds up a row in the logits' own dtype, which loses long rows of 16 bits."""


def cross_entropy(input, target):
    shifted = input - input.detach().amax(dim=1, keepdim=True)
    total = shifted.new_zeros(len(shifted))
    for column in shifted.exp().unbind(1):
        total = total + column
    return (total.log() - shifted.gather(1, target[:, None])[:, 0]).mean()
