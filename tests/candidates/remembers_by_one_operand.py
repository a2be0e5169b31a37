# expect: WRONG|CHEATS wrong,wrong_later: remembers its results by its first operand alone
from bases.remembering import remembering


def known_by(input, target):
    return input.contiguous().detach().numpy().tobytes() if input.device.type == "cpu" else 0


smooth_l1_loss = remembering(known_by)
