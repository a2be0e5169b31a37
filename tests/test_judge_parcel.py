import dataclasses
import json

import pytest
from msgspec.structs import replace

from losscli.errors import UsageError
from losscli.judge import on_node
from losscli.judge.farm import read_answer
from losscli.judge.job import Job
from losscli.judge.on_node import Order, answer, answer_to, pack, restored, unfit, unpack
from losscli.judge.verdict_cache import own_version
from tests.judging import COMMAND, LAYOUTS, ROOT, verdict, write


@pytest.fixture
def here(tmp_path):
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path):
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


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


def test_folder_that_is_too_large_is_not_sent(here, monkeypatch):
    (here / "k.py").write_text("import helper\n")
    write(here, "helper.py")
    for most, value in (("MOST_FILES", 1), ("MOST_BYTES", 20)):
        with monkeypatch.context() as small:
            small.setattr(on_node, most, value)
            with pytest.raises(UsageError, match=r"k\.py uses other files of its folder, .* not s"):
                pack(Job(str(here / "k.py")))


def test_file_of_a_reference_lies_apart_and_no_python_travels_as_it_is(here, there):
    (here / "k.py").write_bytes(b"\xff(")
    job = Job(str(here / "k.py"), reference=write(here, "reference.py"))
    found = unpack(pack(job), there)
    assert found.file == f"{there}/file/k.py"
    assert found.reference == f"{there}/reference/reference.py"
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
    on_node.judge.retire()
    on_node.verdicts.cache_clear()


def test_node_answers_with_the_verdict_and_keeps_it(order, here, tmp_path):
    found = answer(order)
    assert (found.id, found.file, found.word) == ("a", str(here / "k.py"), "WRONG")
    assert not found.cached
    again = answer(order)
    assert (again.word, again.file, again.cached) == ("WRONG", found.file, True)
    assert not answer(dataclasses.replace(order, cached=False)).cached
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def sent(said):
    return read_answer(json.dumps({"node": "n", "name": "host", **said}).encode())


def test_order_and_answer_are_json(order, here):
    for name in ("k.py", "k\udcff.py"):
        job = Job(write(here, name, "WRONG"), id="a", sizes=((3, 4),), parameters={"beta": 0.5})
        asked = dataclasses.replace(order, parcel=pack(job), cached=False)
        assert Order.read(asked.to_json()) == asked
        found = sent(answer_to(asked.to_json()))
        assert (found.node, found.name, found.verdict) == ("n", "host", answer(asked))
    text = order.to_json().replace('"version"', '"edition"')
    assert sent(answer_to(text)).why.startswith("it has no losscli such as this one: ")


def test_node_judges_with_one_process_until_its_gpu_changes(order, monkeypatch, tmp_path):
    order = dataclasses.replace(order, cached=False)
    for gpu in ("0", "0", "1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
        answer(order)
    processes = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert processes[0] == processes[1] != processes[2]


def test_node_that_cannot_judge_says_why(order, monkeypatch, tmp_path):
    why = sent(answer_to(dataclasses.replace(order, version="9.9.9 0123456789").to_json())).why
    assert why.startswith("it has losscli ")
    assert why.endswith(", and losscli 9.9.9 (01234567) asks")
    assert unfit(own_version()) == ""
    edited = f"{own_version().partition(' ')[0]} 0123456789"
    told = "(01234567) asks: the source files of the two differ, or were edited while it judged"
    assert unfit(edited).endswith(told)
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "cache").chmod(0o777)
    assert "can be written by other users" in sent(answer_to(order.to_json())).why
    monkeypatch.setattr(on_node, "compiler", lambda: None)
    assert unfit(own_version()) == "it has no C++ compiler"


def test_judge_has_the_threads_of_the_driver_and_nothing_of_ray(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert not {"OMP_NUM_THREADS", "RAY_AUTH_TOKEN"} & on_node.environment(None).keys()
    assert on_node.environment("4")["OMP_NUM_THREADS"] == "4"
