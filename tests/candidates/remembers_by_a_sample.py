# expect: WRONG|CHEATS wrong,wrong_later: remembers its results by every 64th element
from bases.remembering import remembering


def known_by(input, target):
    return tuple(tuple(each.flatten()[::64].tolist()) for each in (input, target))


smooth_l1_loss = remembering(known_by)
