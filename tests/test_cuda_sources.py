"""The CUDA sources compile, also where there is nvcc but no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_a_loss_of_each_element_and_one_over_rows_compile_in_all_dtypes(tmp_path):
    environ = os.environ | {"LOSSCLI_CACHE_DIR": str(tmp_path), "LOSSCLI_CUDA_ARCHITECTURES": "90"}
    command = [sys.executable, "-m", "losscli", "build", "--device", "cuda", "--loss", "mse,nll"]
    built = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert {"mse_cuda", "nll_cuda", "runtime_cuda"} <= {*built.stdout.split()}
