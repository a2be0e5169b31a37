import os
from dataclasses import fields

from losscli.cases.axes import CHANGING, DTYPES, LAYOUTS
from losscli.config.expansion import expand
from losscli.config.keys import FIELDS, TABLES
from losscli.config.loader import load_config, shipped_configs
from losscli.config.schema import CaseTolerance, Config, Exclude, Inputs, LossChoice, Timing
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import LOSSES, REDUCTIONS, ROW_FORMS
from losscli.losses.rows.spec import LOGITS, VECTORS
from tests.conftest import DATA
from tests.machinery import MACHINERY

FULL = (DATA / "configs" / "every_key.yaml").read_text()


def load(tmp_path, text, **overrides):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_config(str(path), overrides)


def test_every_key_of_a_config_is_read(tmp_path):
    assert load(tmp_path, FULL) == Config(
        title="every key",
        device="cuda:1",
        losses=(LossChoice("mse"), LossChoice("smooth_l1", {"beta": (0.5, 2.0)})),
        sizes=(
            *((1024, 1024), (7,), (0, 10), (10,)),
            *((1024,), (32768,), (2**20,), (2048,), (4096,)),
        ),
        dtypes=("float64",),
        reductions=("mean", "none"),
        passes=("forward",),
        implementations=("reference", "custom"),
        inputs=Inputs(("uniform", "normal"), 0.001, 3),
        exclude=(Exclude(dtype="float64", size=(32768,), pass_="forward"),),
        timing=Timing(0.2, 60.0, 0.005, "warm", budget=60.0),
        tolerances=(CaseTolerance("mse 7 float64 mean", 8.0),),
    )


def test_every_field_of_a_config_is_a_key_or_set_by_a_command():
    assert {TABLES, "filters", "ranks", "whole_targets", *FIELDS} == {
        field.name for field in fields(Config)
    }


def off_default(specs):
    return [LossChoice(s.name, {p.name: (p.off_default,) for p in s.parameters}) for s in specs]


def test_losses_can_be_written_in_each_form(tmp_path):
    others = [spec for spec in LOSSES.values() if spec.name != "mse"]
    for text, expected in {
        "sizes: 8": [LossChoice(name) for name in LOSSES],
        "losses: all": [LossChoice(name) for name in LOSSES],
        "losses: [mse, off_default]": [LossChoice("mse"), *off_default(others)],
        "losses: mse": [LossChoice("mse")],
        "losses: [mse, all]": [LossChoice("mse"), *(LossChoice(s.name) for s in others)],
        "losses: [mse, mse]": [LossChoice("mse")],
        "losses: {smooth_l1: {beta: 2}, mse: }": [
            *(LossChoice("smooth_l1", {"beta": (2.0,)}), LossChoice("mse"))
        ],
    }.items():
        text = text if "sizes" in text else f"sizes: 8\n{text}\n"
        assert list(load(tmp_path, text).losses) == expected, text


def test_a_key_of_a_child_replaces_the_parents(tmp_path):
    (tmp_path / "parent.yaml").write_text("sizes: [8x8]\ninputs: {seed: 3, scale: 2}\n")
    config = load(tmp_path, "extends: parent.yaml\ninputs: {seed: 4}\n")
    assert config.sizes == ((8, 8),)
    assert config.inputs == Inputs(scale=2, seed=4)


def test_given_time_bound_adjusts_the_default_of_the_other(tmp_path):
    for parent, child, bounds in (
        ("{min_time: 0.2s, max_time: 2s}", "{max_time: 0.1s}", (0.1, 0.1)),
        ("{min_time: 0.2s, max_time: 2s}", "{min_time: 3s}", (3, 3)),
        ("{min_time: 0.2s, max_time: 2s}", "{cache: warm}", (0.2, 2)),
        ("{cache: warm}", "{max_time: 0.1s}", (0.1, 0.1)),
        ("{max_time: 20s}", "{min_time: 15s}", (15, 20)),
    ):
        (tmp_path / "parent.yaml").write_text(f"sizes: 8\ntiming: {parent}\n")
        (tmp_path / "middle.yaml").write_text(f"extends: parent.yaml\ntiming: {child}\n")
        timing = load(tmp_path, "extends: middle.yaml\ntiming: {confidence: 3%}\n").timing
        assert (timing.min_time, timing.max_time, timing.confidence) == (*bounds, 0.03)


def test_config_can_be_read_from_a_pipe(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, b"sizes: 7\n")
    os.close(writer)
    assert load_config(f"/dev/fd/{reader}", {}).sizes == ((7,),)
    os.close(reader)


def test_a_bare_name_is_looked_up_here_and_then_among_the_shipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = load_config("smoke", {})
    assert shipped == load_config("smoke.yaml", {})
    (tmp_path / "smoke.yaml").write_text("sizes: 3\n")
    assert load_config("smoke", {}).sizes == load_config("smoke.yaml", {}).sizes == ((3,),)
    # A parent beside the file wins over a shipped one, too.
    assert load(tmp_path, "extends: smoke.yaml\n").sizes == ((3,),)
    assert load(tmp_path, "extends: default\n").sizes == load_config(None, {}).sizes


def test_command_line_wins_over_the_file(tmp_path):
    config = load(tmp_path, FULL, sizes=((5,),), dtypes=("float16",), seed=9, device="cpu")
    assert (config.sizes, config.dtypes, config.device) == (((5,),), ("float16",), "cpu")
    assert config.inputs == Inputs(("uniform", "normal"), 0.001, 9)
    losses = load(tmp_path, FULL, losses=("smooth_l1", "hinge")).losses
    assert losses == (LossChoice("smooth_l1", {"beta": (0.5, 2.0)}), LossChoice("hinge"))
    assert load(tmp_path, "losses: mse\n", sizes=((5,),)).sizes == ((5,),)


def test_tolerance_of_the_parent_may_name_a_dropped_case(tmp_path):
    (tmp_path / "parent.yaml").write_text("sizes: 8\ntolerances: {mse 8 float32 mean: {ulp: 9}}\n")
    config = load(tmp_path, "extends: parent.yaml\nsizes: 4\n")
    assert config.tolerances == (CaseTolerance("mse 8 float32 mean", 9.0),)


def test_each_shipped_config_loads():
    for name in shipped_configs():
        first, *others = load_config(name, {}).blocks
        names = {choice.name.removeprefix("weighted_") for choice in first.losses}
        assert names in ({*LOSSES}, {*MACHINERY}, {"cross_entropy"}, {"linear_cross_entropy"})
        assert all(any(expand(block, "cpu")) for block in (first, *others)), name


TABLED = """
sizes: 8
dtypes: float64
inputs: {scale: 2, seed: 1}
tables:
  - title: as above
  - {title: other, sizes: [4, 5], inputs: {seed: 3}, timing: {cache: warm}}
"""


def test_tables_are_the_blocks_of_a_config(tmp_path):
    config = load(tmp_path, FULL)
    assert (config.tables, config.blocks) == ((), (config,))
    (block,) = load(tmp_path, "tables: [{title: small, sizes: 3}]\n").blocks
    assert block.sizes == ((3,),)


def test_keys_of_a_table_override_the_config_and_the_command_line_overrides_them(tmp_path):
    above, other = load(tmp_path, TABLED).blocks
    assert (above.title, above.sizes) == ("as above", ((8,),))
    assert above.inputs == Inputs(scale=2, seed=1)
    assert (other.title, other.sizes, other.dtypes) == ("other", ((4,), (5,)), ("float64",))
    assert (other.inputs, other.timing) == (Inputs(scale=2, seed=3), Timing(cache="warm"))
    blocks = load(tmp_path, TABLED, sizes=((2,),), seed=9, losses=("mse",)).blocks
    found = [(b.title, b.sizes, b.inputs.seed, b.losses) for b in blocks]
    assert found == [(t, ((2,),), 9, (LossChoice("mse"),)) for t in ("as above", "other")]


def test_tables_are_inherited_with_their_own_keys_and_replaced_as_a_whole(tmp_path):
    (tmp_path / "parent.yaml").write_text(TABLED)
    kept = load(tmp_path, "extends: parent.yaml\nsizes: 7\n").blocks
    assert [block.sizes for block in kept] == [((7,),), ((4,), (5,))]
    (new,) = load(tmp_path, "extends: parent.yaml\ntables: [{title: new}]\n").blocks
    assert (new.title, new.sizes) == ("new", ((8,),))


def test_a_tolerance_may_be_for_a_case_of_any_table(tmp_path):
    text = f"{TABLED}tolerances: {{mse 5 float64 mean: {{ulp: 9}}}}\n"
    assert {b.tolerances for b in load(tmp_path, text).blocks} == {
        (CaseTolerance("mse 5 float64 mean", 9.0),)
    }


def test_peers_config_covers_training_and_has_the_matrix_and_the_strategies():
    for config in ("peers", "peers-cpu"):
        blocks = [b for b in load_config(config, {}).blocks if "reference" in b.implementations]
        assert {layout for block in blocks for layout in block.layouts} == set(LAYOUTS)
        assert {value for block in blocks for value in block.grad_outputs} == {1.0, 0.5, CHANGING}
    peers, *_, strategies = load_config("peers", {}).blocks
    cases = list(expand(peers, "cuda:0"))
    assert {choice.name for choice in peers.losses} == {*MACHINERY}
    assert len(peers.passes) * len(cases) == len(MACHINERY) * 6 * 4 * 2
    assert {case.elements for case in cases} == {2**n for n in (10, 15, 20, 24, 28, 30)}
    rows = {case.target_shape for case in cases if case.loss == "hinge"}
    assert rows == {shape[-1:] for shape in peers.sizes}
    of_custom = {name for name in IMPLEMENTATIONS if name.partition(":")[0] == "custom"}
    assert set(strategies.implementations) == of_custom


def test_smoke_has_every_dtype_reduction_an_odd_size_and_no_default():
    config = load_config("smoke", {})
    assert (set(config.dtypes), set(config.reductions)) == (set(DTYPES), set(REDUCTIONS))
    assert any(all(extent % 2 for extent in shape) for shape in config.sizes)
    for case in expand(config, "cpu"):
        assert all(case.params[each.name] != each.default for each in case.spec.parameters)


def test_groups_of_losses_over_rows(tmp_path):
    for group, holds in (("rows_of_logits", LOGITS), ("rows_of_vectors", VECTORS)):
        losses = load(tmp_path, f"losses: {group}\nsizes: 8x8\n").losses
        assert losses == tuple(LossChoice(n) for n, s in ROW_FORMS.items() if s.holds == holds)
        assert losses
    losses = load(tmp_path, "losses: [rows, rows_off_default]\nsizes: 8x8\n").losses
    others = [
        LossChoice(name, {each.name: (each.off_default,) for each in spec.parameters})
        for name, spec in ROW_FORMS.items()
    ]
    assert losses == (*map(LossChoice, ROW_FORMS), *(each for each in others if each.parameters))
