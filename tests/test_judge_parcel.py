"""A job travels with the files that it needs, and its verdict comes back with its names."""

import json

import pytest
from msgspec.structs import replace

from losscli.errors import UsageError
from losscli.judge import on_node, parcel
from losscli.judge.cache import own_version
from losscli.judge.farm import read_answer
from losscli.judge.job import Job
from losscli.judge.on_node import Order, answer, answer_to, environment, unfit
from losscli.judge.parcel import pack, restored, unpack
from losscli.machine import description
from tests.judging import COMMAND, LAYOUTS, ROOT, verdict, write


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def there(tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    return folder


def test_file_that_stands_alone_travels_alone(here, there):
    write(here, "neighbour.py")
    job = Job(write(here, "k.py", "WRONG") + ":smooth_l1_loss", id="a", loss="smooth_l1")
    sent = pack(job)
    assert list(sent.files) == ["file/k.py"]
    found = unpack(sent, there)
    assert found == replace(job, file=f"{there}/file/k.py:smooth_l1_loss")
    assert (there / "file" / "k.py").read_text() == (here / "k.py").read_text()


def test_file_that_uses_others_of_its_folder_takes_them_along(here, there):
    (here / "k.py").write_text("import helper\nload(sources=['csrc/kernel.cu'])\n")
    for name in ("helper.py", "csrc/kernel.cu", "__pycache__/k.pyc", ".git/config"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(name)
    sent = pack(Job(str(here / "k.py")))
    assert sorted(sent.files) == ["file/csrc/kernel.cu", "file/helper.py", "file/k.py"]
    unpack(sent, there)
    assert (there / "file" / "csrc" / "kernel.cu").read_text() == "csrc/kernel.cu"


@pytest.mark.parametrize(("most", "value"), [("MOST_FILES", 1), ("MOST_BYTES", 20)])
def test_folder_that_is_too_large_is_not_sent(here, monkeypatch, most, value):
    monkeypatch.setattr(parcel, most, value)
    (here / "k.py").write_text("import helper\n")
    write(here, "helper.py")
    with pytest.raises(UsageError, match=r"k\.py uses other files of its folder, .* is not sent"):
        pack(Job(str(here / "k.py")))


def test_file_of_a_reference_lies_apart(here, there):
    job = Job(write(here, "k.py"), reference=write(here, "reference.py"))
    found = unpack(pack(job), there)
    assert (found.file, found.reference) == (
        f"{there}/file/k.py",
        f"{there}/reference/reference.py",
    )


def test_file_that_is_no_python_travels_as_it_is(here, there):
    (here / "k.py").write_bytes(b"\xff(")
    unpack(pack(Job(str(here / "k.py"))), there)
    assert (there / "file" / "k.py").read_bytes() == b"\xff("


def test_verdict_comes_back_with_the_names_of_the_job(here, there):
    job = Job(write(here, "k.py") + ":f", id="a", reference=write(here, "reference.py"))
    found = unpack(pack(job), there)
    repeat = f'repeat("{found.file}", ...)'
    came = verdict(
        "WRONG",
        found.file,
        reasons=(replace(LAYOUTS, repeat=repeat),),
        against=found.reference,
        log=f'File "{there}/file/k.py", line 3',
    )
    back = restored(came, found, job)
    assert (back.id, back.file, back.against) == ("a", job.file, job.reference)
    assert back.reasons[0].repeat == f'repeat("{job.file}", ...)'
    assert back.log == f'File "{here}/k.py", line 3'


@pytest.fixture
def order(here, monkeypatch, tmp_path):
    """Return what a node is asked for, with a judge that says what a file says."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FAKE_JUDGE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    on_node.verdicts.cache_clear()
    yield Order(pack(Job(write(here, "k.py", "WRONG"), id="a")), own_version(), COMMAND)
    on_node.judges.end()
    on_node.verdicts.cache_clear()


def test_node_answers_with_the_verdict_and_keeps_it(order, here, tmp_path):
    found = answer(order)
    assert (found.id, found.file, found.word, found.cached) == (
        "a",
        str(here / "k.py"),
        "WRONG",
        False,
    )
    again = answer(order)
    assert (again.word, again.file, again.cached) == ("WRONG", found.file, True)
    assert not answer(replace_order(order, cached=False)).cached
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def replace_order(order, **changes):
    import dataclasses

    return dataclasses.replace(order, **changes)


def sent(said):
    """Return the answer of a node as it arrives."""
    return read_answer(json.dumps({"node": "n", "name": "host", **said}).encode())


@pytest.mark.parametrize("name", ["k.py", "k\udcff.py"], ids=["text", "bytes that are no text"])
def test_order_and_answer_are_json(order, here, name):
    job = Job(write(here, name, "WRONG"), id="a", sizes=((3, 4),), parameters={"beta": 0.5})
    order = replace_order(order, parcel=pack(job), cached=False)
    assert Order.read(order.to_json()) == order
    found = sent(answer_to(order.to_json()))
    assert (found.node, found.name, found.said) == ("n", "host", answer(order))


def test_order_of_a_losscli_that_asks_for_something_else_is_told(order):
    text = order.to_json().replace('"version"', '"edition"')
    assert sent(answer_to(text)).said.startswith("it has no losscli such as this one: ")


def test_node_whose_verdicts_others_can_change_says_so(order, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert "can be written by other users" in sent(answer_to(order.to_json())).said


def test_node_judges_with_one_process_until_its_gpu_changes(order, monkeypatch, tmp_path):
    order = replace_order(order, cached=False)
    for gpu in ("0", "0", "1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
        answer(order)
    processes = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert processes[0] == processes[1] != processes[2]


def test_node_with_another_losscli_says_so(order):
    why = answer(replace_order(order, version="9.9.9 0123456789"))
    assert why.startswith("it has losscli ")
    assert why.endswith(", and losscli 9.9.9 (01234567) asks")


def test_node_without_a_compiler_says_so(monkeypatch):
    monkeypatch.setattr(on_node, "compiler", lambda: None)
    assert unfit(own_version()) == "it has no C++ compiler"
    monkeypatch.setattr(on_node, "compiler", description.compiler)
    assert unfit(own_version()) == ""


def test_judge_has_the_threads_of_the_driver_and_nothing_of_ray(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert not {"OMP_NUM_THREADS", "RAY_AUTH_TOKEN"} & environment(None).keys()
    assert environment("4")["OMP_NUM_THREADS"] == "4"
