# expect: WRONG|CHEATS wrong,wrong_later: remembers its results by sums of the operands
from bases.remembering import remembering


def known_by(input, target):
    return tuple(float(each.double().sum()) for each in (input, target))


smooth_l1_loss = remembering(known_by)
