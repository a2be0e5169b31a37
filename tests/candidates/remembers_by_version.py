# expect: WRONG|CHEATS wrong,wrong_later: remembers its results by addresses and versions
from bases.remembering import remembering


def known_by(input, target):
    return input.data_ptr(), input._version, target.data_ptr(), target._version


smooth_l1_loss = remembering(known_by)
