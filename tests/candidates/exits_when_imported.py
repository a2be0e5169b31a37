# expect: DOES NOT BUILD|CRASHED import_failed,process_died: ends the program while it is imported
import sys

sys.exit(0)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    raise AssertionError("never reached")
