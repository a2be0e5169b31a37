# expect: WRONG|CHEATS wrong,wrong_later: remembers its results by first elements
from bases.remembering import remembering


def known_by(input, target):
    return tuple(float(each.flatten()[0]) for each in (input, target) if each.numel())


smooth_l1_loss = remembering(known_by)
