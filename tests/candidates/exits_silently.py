# expect: CRASHED process_died: exits 0 without a word
import os


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    os._exit(0)
