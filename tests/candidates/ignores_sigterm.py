# expect: HANGS|WRONG timeout,left_behind: hangs, and ignores every signal that can be ignored
# limits: call_seconds=3
import contextlib
import signal


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()
