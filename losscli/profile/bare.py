"""The calls under a profiler: a few to warm up, and a marked one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
        with _traced(trace), ExitStack() as marks:
            if on_gpu:
                marks.enter_context(torch.cuda.profiler.profile())
                marks.enter_context(torch.cuda.nvtx.range("{} {}", case.name, pass_))
            call()
            if on_gpu:
                torch.cuda.synchronize(case.device)


def _in_this_process(implementation: Implementation, scratch: str) -> Implementation:
    """Return an implementation whose file, if any, is imported here with its own folder."""
    if not (file := implementation.file):
        return implementation
    from losscli.implementations.sandbox.program import bound, import_source

    def bind(case: Case) -> BoundLoss:
        module = import_source(file.program, str(file.path), file.path.stem, scratch)
        return bound(module, binding(file, case))

    return Implementation(implementation.name, implementation.description, bind)


@contextmanager
def _traced(trace: Path | None) -> Iterator[None]:
    """Write a trace by PyTorch's profiler, after a discarded one that starts it."""
    if trace is None:
        yield
        return
    with torch.profiler.profile():
        pass
    with torch.profiler.profile() as profiler:
        yield
    profiler.export_chrome_trace(str(trace))
