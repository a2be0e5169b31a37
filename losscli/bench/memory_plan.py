"""Plan a case's memory before anything is allocated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from losscli.cases.axes import CHANGING, DEVICE, GRAPH, Mode, PassName, grad_output_values
from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.reasons import Code, Reason
from losscli.truth.blocks import block_elements, linear_oracle_bytes
from losscli.units import format_bytes

RESERVE = 512 * 2**20
"""Memory that does not grow with a case: oracle blocks, eviction, workspaces."""
GPU_RESERVE = 2**30


@dataclass(frozen=True)
class MemoryPlan:
    """The planned peak memory of timing implementations together, in bytes."""

    inputs: int
    """The operands and, without a reduction, grad_output."""
    outputs: int
    """Each implementation's last loss, which is judged at the end, and one gradient, which they
    share; with graphs each has its own. On a CPU also the arrays that the probe writes."""
    temporaries: Mapping[str, int]
    """Temporaries of each implementation's call; only one call runs at a time."""
    reserve: int
    kept: bool = False

    @property
    def total(self) -> int:
        """The sum, with the largest temporaries, or all where they are kept."""
        sizes = self.temporaries.values()
        held = sum(sizes) if self.kept else max(sizes, default=0)
        return self.inputs + self.outputs + held + self.reserve


def plan_memory(
    case: Case, pass_: PassName, implementations: Sequence[Implementation], mode: Mode = DEVICE
) -> MemoryPlan:
    """Plan the memory for timing these implementations together."""
    graphs = mode == GRAPH
    tensor = case.elements * case.item_bytes
    loss = case.loss_bytes
    inputs = case.stored_bytes
    outputs = len(implementations) * loss
    if pass_ == "forward_backward":
        gradients = sum(case.operand_bytes[name] for name in case.spec.trained)
        outputs += gradients * (len(implementations) if graphs else 1)
        inputs += loss * len(grad_output_values(case.grad_output))
        if graphs and loss and case.grad_output == CHANGING:  # each graph reads its own
            inputs += loss * len(implementations)
    if case.operations(pass_):  # the bare products are sampled too
        outputs += case.temporary_elements * case.item_bytes + 2 * outputs
    elif case.device == "cpu" and outputs:  # the copy kernels are sampled too
        outputs += tensor
    if case.device == "cpu" and case.mixes_dtypes:  # the probe reads it for the target
        inputs += tensor
    if case.placement:  # each rank has the whole, which is judged, and its own part
        inputs += case.shard.stored_bytes
        outputs += outputs
    temporaries = {i.name: i.temporary_bytes(case) for i in implementations}
    reserve = RESERVE if case.device == "cpu" else GPU_RESERVE
    reserve += 8 * case.spec.term_tensors * min(case.elements, block_elements(case.device))
    reserve += 2 * linear_oracle_bytes(case)  # kept for each of the operands' contents
    return MemoryPlan(inputs, outputs, temporaries, reserve, graphs)


Fitting = tuple[list[Implementation], dict[str, Reason]]
"""The implementations that fit, and why others do not, by name."""


def those_that_fit(
    case: Case,
    pass_: PassName,
    implementations: Sequence[Implementation],
    free: int,
    mode: Mode = DEVICE,
) -> Fitting:
    """Return the implementations that fit, and why each larger one does not."""
    able = list(implementations)
    reasons: dict[str, Reason] = {}
    while able and (needed := plan_memory(case, pass_, able, mode).total) > free:
        greediest = max(able, key=lambda implementation: implementation.temporary_bytes(case))
        able.remove(greediest)
        text = f"needs {format_bytes(needed)} of memory, {format_bytes(free)} are free"
        reasons[greediest.name] = Reason(Code.INSUFFICIENT_MEMORY, text)
    return able, reasons
