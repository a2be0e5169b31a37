import pytest
import torch

import losscli.functional  # noqa: F401 - defines the operators
from losscli.losses import LOSSES, ROW_LOSSES, WEIGHTED
from losscli.operators import fallback
from losscli.truth.inputs import make_inputs
from tests.handmade import case_of
from tests.parameters import few, naming

SPECS = LOSSES | WEIGHTED | ROW_LOSSES
DTYPES = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def drawn(name, device):
    spec = SPECS[name]
    case = case_of(spec.name, (9, 23), device=device, dtype="float64")
    given = make_inputs(case)
    operands = [given.get(operand.name) for operand in spec.operands]
    return operands, [p.example for p in spec.parameters]


def called(name, suffix, arguments):
    operator = getattr(torch.ops.losscli, name + suffix).default
    every = [*arguments, *(a.default_value for a in operator._schema.arguments[len(arguments) :])]
    copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in every]
    return operator(*arguments), fallback.compute(SPECS[name], suffix, copies, below_autograd=True)


@pytest.mark.parametrize("name", few(SPECS))
def test_formula_of_each_operator_equals_its_kernels(name, device):
    spec, (operands, settings) = SPECS[name], drawn(name, device)
    count = spec.gradients if name in ROW_LOSSES else len(spec.operands)
    for dtype, tolerance in DTYPES.items():
        given = [x.to(dtype) if x is not None and x.is_floating_point() else x for x in operands]
        one = torch.tensor(0.7, dtype=torch.float32 if spec.wide else dtype, device=device)
        for reduction in spec.reductions:
            rest = [*given, reduction, *settings]
            value, _ = called(name, "", rest)
            calls = {
                "": rest,
                "_with_grad": rest,
                "_backward": [one.expand(value.shape), *rest, [True] * count],
            }
            # Autograd differentiates some references twice with errors at the ends of a domain.
            if f"losscli::{name}_double_backward" in SCHEMAS and not spec.second_order:
                vectors = [torch.full_like(x, 0.3) for x in given]
                calls["_double_backward"] = [*vectors, one.expand(value.shape), *rest]
            if f"losscli::{name}_with_grad_" in SCHEMAS:
                calls["_with_grad_"] = rest
            for suffix, arguments in calls.items():
                with naming(suffix, reduction, dtype):
                    pair = called(name, suffix, arguments)
                    torch.testing.assert_close(*pair, rtol=tolerance, atol=tolerance)


SCHEMAS = {str(name).partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
