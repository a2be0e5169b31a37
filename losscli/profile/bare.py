"""The calls under a profiler: a few to warm up, and a marked one."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from losscli.cases.axes import PassName
from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.binding import binding
from losscli.implementations.implementation import BoundLoss
from losscli.implementations.local import LocalSubject
from losscli.implementations.passes import PassFactory, gradients
from losscli.truth.inputs import make_inputs


def run(case: Case, pass_: PassName, implementation: Implementation, trace: Path | None) -> None:
    """Call a loss and mark the last call for a profiler, or write PyTorch's ``trace``.

    The marks are the CUDA profiler's and an NVTX range. A user's file runs outside any sandbox.
    """
    passes = PassFactory(case, pass_, make_inputs(case).values())
    with gradients(pass_), TemporaryDirectory(prefix="losscli-") as scratch:
        call = LocalSubject.bind(_in_this_process(implementation, scratch), case).repeated(passes)
        for _ in range(3):  # they build, compile and allocate
            call.prepare()
            call()
        call.prepare()
        on_gpu = case.device != "cpu"
        if on_gpu:
            torch.cuda.synchronize(case.device)
        with ExitStack() as watched:
            if trace:
                with torch.profiler.profile():
                    pass  # the first one starts it
                profiler = watched.enter_context(torch.profiler.profile())
            if on_gpu:
                watched.enter_context(torch.cuda.profiler.profile())
                watched.enter_context(torch.cuda.nvtx.range("{} {}", case.name, pass_))
            call()
            if on_gpu:
                torch.cuda.synchronize(case.device)
        if trace:
            profiler.export_chrome_trace(str(trace))


def _in_this_process(implementation: Implementation, scratch: str) -> Implementation:
    """Return an implementation whose file, if any, is imported here with its own folder."""
    if not (file := implementation.file):
        return implementation
    from losscli.implementations.sandbox.program import bound, import_source

    def bind(case: Case) -> BoundLoss:
        module = import_source(file.program, str(file.path), file.path.stem, scratch)
        return bound(module, binding(file, case))

    return Implementation(implementation.name, implementation.description, bind)
