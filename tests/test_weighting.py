from dataclasses import replace

import pytest

from losscli.build.plan import csrc_root, installed_torch, make_plan
from losscli.build.targets import LOSS, Target, production, read_sources
from losscli.cases.case import Case
from losscli.cli.options import _losses
from losscli.config.fields import check_loss
from losscli.config.loader import load_config
from losscli.config.schema import off_default
from losscli.errors import ConfigError, UsageError
from losscli.losses import LOSSES, WEIGHTED, Tolerance, find_loss
from losscli.losses.elementwise.weighting import weighted


def config(tmp_path, losses):
    path = tmp_path / "mine.yaml"
    path.write_text(f"sizes: 8\nlosses: {losses}\n")
    return load_config(str(path), {}).losses


def test_every_loss_has_a_weighted_one_with_one_operand_more():
    assert list(WEIGHTED) == [f"weighted_{name}" for name in LOSSES]
    for spec, own in zip(WEIGHTED.values(), LOSSES.values(), strict=True):
        assert spec.names == (*own.names, "weight")
        assert spec.differentiable == (*own.differentiable, "weight")
        assert (spec.parameters, spec.kinks, spec.module) == (own.parameters, own.kinks, own.module)


def test_tolerance_has_two_roundings_more_than_that_of_the_loss():
    loose = replace(LOSSES["mse"], tolerance=Tolerance(2.0, "it cancels"))
    assert weighted(LOSSES["mse"]).tolerance == Tolerance(
        1.5, "the weight adds two roundings to the four of an element"
    )
    assert weighted(loose).tolerance.factor == 2.5
    assert weighted(loose).tolerance.reason.startswith("it cancels; ")


def test_library_of_a_weighted_loss_is_made_of_the_loss_and_the_wrapper():
    own, other = (
        set(read_sources(csrc_root(), Target(LOSS, "cpu", loss)))
        for loss in ("mse", "weighted_mse")
    )
    assert other - own == {"losses/elementwise/weighted.h"}
    assert own <= other


def test_library_of_a_weighted_loss_is_compiled_with_the_name_of_the_loss():
    plan = make_plan(Target(LOSS, "cpu", "weighted_mse"), csrc_root(), installed_torch())
    assert plan.library == "liblosscli_weighted_mse_cpu.so"
    assert {flag for flag in plan.steps[0].flags if flag.startswith("-DLOSSCLI_")} == {
        "-DLOSSCLI_LOSS=weighted_mse",
        '-DLOSSCLI_LOSS_HEADER="losses/elementwise/weighted.h"',
        "-DLOSSCLI_WEIGHTED=mse",
        '-DLOSSCLI_WEIGHTED_HEADER="losses/elementwise/mse.h"',
    }


def test_build_of_all_losses_compiles_none_with_a_weight():
    assert {target.loss for target in production(LOSSES, "cpu")} == {"", *LOSSES}


def test_weighted_losses_are_chosen_by_name_and_are_no_part_of_all(tmp_path):
    assert [choice.name for choice in config(tmp_path, "all")] == list(LOSSES)
    assert [choice.name for choice in config(tmp_path, "weighted_mse")] == ["weighted_mse"]
    (choice,) = config(tmp_path, "{weighted_hinge: {margin: [0.5, 2]}}")
    assert (choice.name, choice.parameters) == ("weighted_hinge", {"margin": (0.5, 2.0)})
    every = config(tmp_path, "[mse, weighted]")
    assert [choice.name for choice in every] == ["mse", *WEIGHTED]
    assert [{n: v for n, (v,) in c.parameters.items()} for c in every[1:]] == [
        off_default(spec) for spec in LOSSES.values()
    ]


def test_option_takes_one_weighted_loss_or_all():
    assert _losses("weighted_mse") == ("weighted_mse",)
    assert _losses("weighted") == tuple(WEIGHTED)
    assert _losses("all") == tuple(LOSSES)


def test_unknown_losses_get_a_suggestion_of_their_kind(tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'weighted_mse'"):
        check_loss("weighted_mes")
    with pytest.raises(UsageError, match="Did you mean 'mse'"):
        check_loss("mes")
    with pytest.raises(ConfigError, match="2:9: unknown loss 'weighted_mes'"):
        config(tmp_path, "weighted_mes")


def test_case_of_a_weighted_loss_has_a_weight_of_the_shape_of_the_prediction():
    params = {"margin": 1.0}
    case = Case("weighted_hinge", (4, 6), (6,), "float16", "mean", "cpu", params, "normal", 0)
    assert case.spec is find_loss("weighted_hinge")
    assert case.shapes == {"input": (4, 6), "target": (6,), "weight": (4, 6)}
    assert case.name == "weighted_hinge 4x6 float16 mean normal"
    assert case.floor_bytes("forward") == 2 * (24 + 6 + 24)
