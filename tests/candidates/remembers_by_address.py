# expect: WRONG|CHEATS wrong,wrong_later: remembers its results by addresses
from bases.remembering import remembering


def known_by(input, target):
    return input.data_ptr(), target.data_ptr()


smooth_l1_loss = remembering(known_by)
