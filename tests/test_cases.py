import json
import pickle
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from losscli.bench.memory_plan import plan_memory
from losscli.bench.plan import plan
from losscli.cases.axes import CHANGING, CONTIGUOUS, LAYOUTS, PASSES, Parameters
from losscli.cases.case import Case, distinct_names
from losscli.cli import main
from losscli.compare.configurations import configurations
from losscli.compare.row_keys import key
from losscli.config.expansion import asked_for, expand
from losscli.config.filters import parse_filter
from losscli.config.schema import Config, Exclude, LossChoice
from losscli.implementations import find_implementation
from losscli.losses import EVERY_LOSS, LOSSES
from losscli.render.records import render
from losscli.runs.encoding import read_json
from losscli.runs.reading import read_run
from losscli.truth.inputs import make_inputs
from tests.handmade import result, run
from tests.machinery import MACHINERY


@pytest.fixture
def case(make_case):
    return make_case("smooth_l1", params={"beta": 0.5})


def test_cases_are_one_key_where_they_are_equal_and_survive_json_and_pickle(case):
    assert {case: 1}[replace(case, params={"beta": 0.5})] == 1
    for changes in ({"seed": 1}, {"scale": 2.0}, {"params": {"beta": 0.7}}, {"device": "cuda:0"}):
        assert len({case, replace(case, **changes)}) == 2, changes
    text = json.dumps(case.to_json()).encode()
    assert {case, read_json(Case, text), pickle.loads(pickle.dumps(case))} == {case}


def test_parameters_are_read_as_a_mapping_and_cannot_be_changed():
    parameters: Any = Parameters({"beta": 0.5})
    assert dict(parameters) == {"beta": 0.5} == parameters
    assert repr(parameters) == "{'beta': 0.5}"
    with pytest.raises(TypeError):
        parameters["beta"] = 1.0


def test_distinct_names_differ_where_case_names_are_equal(case):
    other, alone = replace(case, seed=3), replace(case, dtype="float64")
    assert distinct_names([case, other, alone, case]) == {
        case: f"{case.name} seed=0",
        other: f"{case.name} seed=3",
        alone: alone.name,
    }
    other = replace(case, params={"beta": 0.5000001})
    assert case.name == other.name
    assert list(distinct_names([case, other]).values()) == [
        f"{case.name} params=beta=0.5",
        f"{case.name} params=beta=0.5000001",
    ]


def test_layout_whose_shapes_the_function_refuses_is_impossible(make_case):
    text = "broadcast_middle: binary_cross_entropy: target must have the shape of input [2, 3, 4]"
    shapes = {"layout": "broadcast_middle", "shape": (2, 3, 4), "target_shape": (2, 1, 4)}
    for loss in ("binary_cross_entropy", "soft_margin", "mse"):
        impossible = make_case(loss, params={}, **shapes).impossible
        refused = loss == "binary_cross_entropy"
        assert (impossible is not None and text in str(impossible)) == refused, loss


ONE_LOSS = (LossChoice("mse"),)


def cases(*sizes, **axes):
    return list(expand(Config(losses=ONE_LOSS, sizes=sizes, **axes), "cpu"))


def test_duplicate_case_is_yielded_once():
    losses = (LossChoice("smooth_l1"), LossChoice("smooth_l1", {"beta": (1.0, 2.0)}))
    found = expand(Config(losses=losses, sizes=((8,),)), "cpu")
    assert [case.params["beta"] for case in found] == [1.0, 2.0]


def of_layout(layout, size=(6, 8), **changes):
    (case,) = cases(size, layouts=(layout,), dtypes=(changes.pop("dtype", "float32"),))
    return replace(case, **changes)


@pytest.mark.parametrize("loss", MACHINERY)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_have_the_shapes_dtypes_and_strides_of_their_layout(loss, layout):
    config = Config(losses=(LossChoice(loss),), sizes=((6, 8),), layouts=(layout,))
    (case,) = expand(config, "cpu")
    input, target, *_ = make_inputs(case).values()
    assert (input.shape, target.shape) == (case.shape, case.target_shape)
    assert not input.isnan().any()
    assert not target.isnan().any()
    row = LOSSES[loss].default_target_shape((6, 8)) == (8,)
    strides = {
        "contiguous": ((8, 1), (1,) if row else (8, 1)),
        "sliced": ((9, 1), (1,) if row else (9, 1)),
        "transposed": ((1, 6), (1,) if row else (8, 1)),
        "broadcast_middle": ((8, 4, 1), (4, 4, 1)),
        "mixed_dtype": ((8, 1), (1,) if row else (8, 1)),
    }
    assert (input.stride(), target.stride()) == strides[layout]
    mixed = layout == "mixed_dtype"
    assert target.dtype == (torch.bfloat16 if mixed else torch.float32)
    assert case.size == (6, 8)


def test_views_have_the_values_of_contiguous_operands():
    for layout in ("sliced", "transposed"):
        for distribution in ("uniform", "boundary", "impulse"):
            plain = make_inputs(of_layout(CONTIGUOUS, distribution=distribution))
            views = make_inputs(of_layout(layout, distribution=distribution))
            assert all(torch.equal(plain[name], views[name]) for name in plain), layout


def test_impossible_layout_of_a_size_has_a_reason():
    for layout, size, reason in (
        ("transposed", (8,), "transposed needs two dimensions"),
        ("broadcast_middle", (8,), "broadcast_middle needs two dimensions"),
        ("broadcast_middle", (8, 7), "a last dimension with divisors, 7 has none"),
    ):
        assert reason in of_layout(layout, size).impossible.text


def test_broadcast_middle_uses_the_largest_divisor_up_to_the_root():
    case = of_layout("broadcast_middle", (4, 3, 24))
    assert (case.shape, case.target_shape) == ((4, 3, 4, 6), (4, 3, 1, 6))


def test_byte_floor_reads_each_operand_once_in_its_own_dtype():
    floors = {layout: of_layout(layout).floor_bytes("forward_backward") for layout in LAYOUTS}
    dense = 3 * 48 * 4
    assert floors == {
        "contiguous": dense,
        "sliced": dense,
        "transposed": dense,
        "broadcast_middle": 2 * 48 * 4 + 6 * 4 * 4,
        "mixed_dtype": 2 * 48 * 4 + 48 * 2,
    }
    wide = of_layout("mixed_dtype", dtype="float16", reduction="none")
    assert wide.floor_bytes("forward") == 48 * (2 + 4 + 4)


def test_memory_plan_counts_the_tensors_behind_views():
    custom = [find_implementation("custom")]
    inputs = {n: plan_memory(of_layout(n), "forward", custom).inputs for n in LAYOUTS}
    assert inputs["sliced"] == 2 * 6 * 9 * 4
    assert inputs["transposed"] == inputs["contiguous"] == 2 * 48 * 4
    changing = of_layout(CONTIGUOUS, reduction="none", grad_output=CHANGING)
    plain = replace(changing, grad_output=1.0)
    tensors = [plan_memory(c, "forward_backward", custom).inputs for c in (plain, changing)]
    assert tensors[1] - tensors[0] == 9 * 48 * 4


def test_forward_has_no_incoming_gradient_and_runs_once():
    def passes(*values):
        asked = Config(losses=ONE_LOSS, sizes=((8, 8),), grad_outputs=values)
        return [(task.case.grad_output, *task.passes) for task in plan(asked, "cpu")]

    assert passes(1.0, 0.5, CHANGING) == [(1.0, *PASSES), (0.5, PASSES[1]), (CHANGING, PASSES[1])]
    assert passes(0.5) == [(1.0, PASSES[0]), (0.5, PASSES[1])]


def test_case_names_show_values_that_are_not_the_default():
    case = of_layout("sliced", grad_output=0.5)
    assert case.name == "mse 6x8 float32 mean sliced grad_output=0.5"
    assert of_layout("broadcast_middle").name == "mse 6x8 float32 mean broadcast_middle"
    assert of_layout(CONTIGUOUS).name == "mse 6x8 float32 mean"


def kept(layouts, grad_outputs, **changes):
    axes = {"sizes": ((6, 8),), "layouts": layouts, "grad_outputs": grad_outputs}
    config = Config(losses=ONE_LOSS, **axes, **changes)
    return [c for c in expand(config, "cpu") if asked_for(config, c, "custom", PASSES[1])]


def test_filters_and_exclude_rules_match_layout_and_grad_output():
    for filter, count in {
        "layout=sliced|transposed": 4,
        "grad_output=0.5": 5,
        "grad_output!=1,layout=mixed*": 1,
        "size=6x8": 10,
    }.items():
        assert len(kept(LAYOUTS, (1.0, 0.5), filters=(parse_filter(filter),))) == count, filter
    rules = Exclude(size=(6, 8), layout="broadcast_middle"), Exclude(grad_output=CHANGING)
    found = kept((CONTIGUOUS, "broadcast_middle"), (1.0, CHANGING), exclude=rules)
    assert [(c.layout, c.grad_output) for c in found] == [(CONTIGUOUS, 1.0)]


def test_options_set_layout_and_grad_output(capsys):
    words = "bench --size 8x8 --loss mse --layout sliced,transposed --grad-output 0.5 "
    words += "--grad-output changing --pass forward_backward --list"
    assert main.run(words.split()) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"mse 8x8 float32 mean {layout} grad_output={value}"
        for layout in ("sliced", "transposed")
        for value in ("0.5", "changing")
    ]


def written(tmp_path, case, **changes):
    """Write a record of a case whose fields are changed, or left out for None."""
    record = json.loads(render(run(result("custom", case=case)), "json"))
    asked = record["results"][0]["case"] | changes
    record["results"][0]["case"] = {k: v for k, v in asked.items() if v is not None}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(record))
    return path


def test_a_parameter_that_a_kernel_lacks_is_written_as_none(make_case):
    absent = EVERY_LOSS["cross_entropy"].parameters[0].absent
    case = make_case("cross_entropy", params={"ignore_index": absent})
    assert case.name == "cross_entropy ignore_index=none 37x101 float32 mean"
    assert "ignore_index=3 " in make_case("cross_entropy", params={"ignore_index": 3.0}).name


def test_records_keep_layout_and_grad_output(tmp_path):
    for value in (1.0, 0.5, CHANGING):
        case = of_layout("sliced", grad_output=value)
        assert read_run(written(tmp_path, case), "bench").results[0].case == case
    old = read_run(written(tmp_path, case, layout=None, grad_output=None), "bench").results[0].case
    assert (old.layout, old.grad_output) == (CONTIGUOUS, 1.0)


def test_rows_and_configurations_differ_by_layout_and_grad_output():
    made = [
        result("custom", case=of_layout(layout, grad_output=value))
        for layout in LAYOUTS
        for value in (1.0, 0.5, CHANGING)
    ]
    assert len({key(each) for each in made}) == len(made)
    assert len(configurations(run(*made))) == len(made)


def test_reshaped_case_is_contiguous():
    case: Case = of_layout("transposed").reshaped((3,))
    assert (case.layout, case.target_shape) == (CONTIGUOUS, (3,))
