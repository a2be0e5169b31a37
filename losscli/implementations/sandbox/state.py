"""The state of a worker: a file's module and the subjects bound to it."""

from functools import partial
from types import ModuleType

from torch import Tensor

from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.implementations import binding
from losscli.implementations.implementation import BoundLoss, Implementation, Mend
from losscli.implementations.languages import Tuning
from losscli.implementations.local import LocalSubject
from losscli.implementations.process_state import ProcessState, StateChange
from losscli.implementations.sandbox import builds
from losscli.implementations.sandbox.modules import BoundModel
from losscli.implementations.sandbox.program import Binding, bound, import_source
from losscli.implementations.sandbox.timed import TimedPass
from losscli.implementations.source import Source


class State:
    """What requests to a worker read and change."""

    def __init__(self, device: str, scratch: str, tuning: Tuning) -> None:
        self.device, self.scratch, self.tuning = device, scratch, tuning
        self.module: ModuleType | None = None
        self.subjects: dict[tuple[Case, int, tuple[Mend, ...]], LocalSubject] = {}
        self.local: LocalSubject | None = None
        """The subject of a request's case, if it has one."""
        self.timed: TimedPass
        self.before = ProcessState.read()
        self.constructed: dict[StateChange, bool] = {}
        """Changes by binding, and whether they were reported."""
        self.file: Source
        self.source: tuple[str, str, str, str]
        self.order: tuple[str, ...] = ()

    def load(self, file: Source, order: tuple[str, ...], built: Tensor, *, unmarked: bool) -> None:
        """Unpack an earlier worker's compiled output and import a file."""
        self.file, self.order = file, order
        if built.numel():
            builds.unpack(built.numpy().data, self.scratch)
        path = self.file.path  # without a revision, it may import neighbouring files
        beside, name = "" if self.file.revision else str(path), self.file.module or path.stem
        self.source = self.file.program, beside, name, self.scratch
        if not unmarked:
            self.module = import_source(*self.source)
            self.tuning.watch()

    def subject(self, case: Case, generation: int, mends: tuple[Mend, ...]) -> LocalSubject:
        """Return the subject of a case, bound once for each generation."""
        key = case, generation, mends
        if key not in self.subjects:
            for known in [each for each in self.subjects if each[0] == case]:
                del self.subjects[known]
            implementation = Implementation(self.file.named, "", partial(self._bind, mends=mends))
            self.subjects[key] = LocalSubject.bind(implementation, case)
        return self.subjects[key]

    def _bind(self, case: Case, *, mends: tuple[Mend, ...]) -> BoundLoss:
        """Return the file's definition as a case calls it; note changes by its constructor."""
        before = ProcessState.read()
        try:
            return self._function(case, mends)
        finally:
            for change in before.restore():
                self.constructed.setdefault(change, False)

    def _function(self, case: Case, mends: tuple[Mend, ...]) -> BoundLoss:
        assert self.module is not None
        if isinstance(case, ModelCase):
            return BoundModel(self.module, self.file.definition(""), case, copies=bool(mends))
        function = bound(self.module, self.binding(case))
        if "operands" in mends:
            function = binding.on_copies(function)
        if "gradients" in mends:
            function = binding.with_all_gradients(function, case)
        return binding.mended(function, case) if "results" in mends else function

    def binding(self, case: Case) -> Binding:
        """Return how a case calls the file's definition."""
        return binding.binding(self.file, case, self.order)
