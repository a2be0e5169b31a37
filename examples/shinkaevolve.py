"""ShinkaEvolve's evaluator for a loss kernel.

`python examples/shinkaevolve.py --program_path P --results_dir D --loss smooth_l1` judges P and
writes correct.json and metrics.json into D.
"""

import argparse
import json
from pathlib import Path

import losscli
from losscli.judge.verdict import score

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--program_path", required=True)
parser.add_argument("--results_dir", required=True)
parser.add_argument("--loss", required=True)
given = parser.parse_args()
folder = Path(given.results_dir)
folder.mkdir(parents=True, exist_ok=True)
verdict = losscli.judge(given.program_path, loss=given.loss)
error = None if verdict.right else verdict.feedback
public = {"correct": verdict.right, "verdict": verdict.verdict}
metrics = {"combined_score": score(verdict), "public": public, "text_feedback": verdict.feedback}
(folder / "correct.json").write_text(json.dumps({"correct": verdict.right, "error": error}))
(folder / "metrics.json").write_text(json.dumps(metrics))
