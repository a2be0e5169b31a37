"""Search for a fast smooth L1: propose a kernel, read its verdict, keep the fastest right one.

`python examples/search.py ROUNDS SEED` prints a line for each proposal, and the best kernel.
A real search has a language model in place of `propose`, and gives it the verdict's `feedback`.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from string import Template

KERNEL = Template("""import torch
from torch.nn import functional

def smooth_l1_loss(x, y, *, reduction="mean", beta=1.0):
    loss = $loss
    return $result
""")
SMALL, LARGE = "0.5 * (x - y) ** 2 / beta", "(x - y).abs() - 0.5 * beta"
CHOICES = {
    "loss": [
        f"torch.where((x - y).abs() < beta, {SMALL}, {LARGE})",
        f"torch.minimum({SMALL}, {LARGE})",
        "None",
    ],
    "result": [
        "loss if reduction == 'none' else getattr(loss, reduction)()",
        "loss.mean()",
        "functional.smooth_l1_loss(x, y, reduction=reduction, beta=beta)",
    ],
}


def propose(best: dict[str, str], chance: random.Random) -> dict[str, str]:
    """Return the best kernel with some parts exchanged at random."""
    return {name: chance.choice([best[name], *others]) for name, others in CHOICES.items()}


def search(rounds: int, seed: int) -> None:
    """Judge ``rounds`` proposals, each made from the best so far."""
    chance, fastest = random.Random(seed), float("inf")
    parts = best = {name: choices[0] for name, choices in CHOICES.items()}
    command = [sys.executable, "-m", "losscli", "judge", "-q", "--jobs", "-", "--workers", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(command, **pipes) as judge:
        for number in range(rounds):
            path = Path(folder, f"{number}.py")
            path.write_text(KERNEL.substitute(parts))
            job = {"file": str(path), "loss": "smooth_l1", "quick": True}
            print(json.dumps(job), file=judge.stdin, flush=True)
            verdict = json.loads(judge.stdout.readline())
            seconds = sum(each["seconds"] for each in verdict["speed"])
            print(f"{number}: {verdict['verdict']}, {1e3 * seconds:.3f} ms, {[*parts.values()]}")
            if verdict["reward"] and seconds < fastest:
                best, fastest = parts, seconds
            parts = propose(best, chance)
        judge.stdin.close()
    print(KERNEL.substitute(best))


search(int(sys.argv[1]), int(sys.argv[2]))
