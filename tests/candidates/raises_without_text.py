# expect: CRASHED raised: an exception whose text raises as well
class Mute(Exception):  # noqa: N818
    def __str__(self):
        raise Mute

    __repr__ = __str__


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    raise Mute
