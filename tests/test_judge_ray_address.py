import importlib
import os
import socket
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from losscli.cli import main
from losscli.errors import EXIT_UNFIT, UnfitError
from losscli.judge import ray_cluster
from losscli.judge.ray_cluster import RayCluster, client_address, usual_address
from tests.judging import write


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    write(tmp_path, "k.py")
    return tmp_path


def open_and_close(cluster):
    try:
        cluster.open()
    finally:
        cluster.close([])


def test_address_of_a_client_server_is_given_to_ray_as_it_is():
    for text in ("head:10001", "10.0.0.1:10001", "[fe80::1]:10001"):
        assert client_address(text).text == str(client_address(text)) == f"ray://{text}"


def test_address_of_the_variable_is_named_with_it_and_words_are_rays(monkeypatch):
    assert usual_address() == "auto"
    for word, expected in {"": "auto", "auto": "auto", "local": "local"}.items():
        monkeypatch.setenv("RAY_ADDRESS", word)
        assert usual_address() == expected
    for text in ("head:6379", "ray://head:10001"):
        monkeypatch.setenv("RAY_ADDRESS", text)
        assert (usual_address().text, str(usual_address())) == (text, f"{text} (RAY_ADDRESS)")


WRONG = ["localhost", "", "head:", "head:0", "head:65536", ":10001", "ray://x:1", "a b:1"]


def test_wrong_address_or_variable_is_refused_before_the_output_is_opened(
    folder, refused, monkeypatch
):
    no_address = "is not an address of a Ray cluster."
    for text in WRONG:
        said = f"'ray://{text}' {no_address} Write ray://HOST:PORT"
        refused(["judge", "k.py", "--on", f"ray://{text}", "-o", "out.jsonl"], said)
    for value in ("localhost", "ray://", "ray://ray://x:1", "http://x:1"):
        monkeypatch.setenv("RAY_ADDRESS", value)
        said = f"RAY_ADDRESS: '{value}' {no_address} Set it to HOST:PORT"
        refused("judge k.py --on ray -o out.jsonl", said)
    assert not (folder / "out.jsonl").exists()


def test_address_at_which_nobody_answers_is_refused(free_address, monkeypatch):
    for address, said in (
        (free_address, f"no Ray cluster responds at ray://{free_address}: .*refu"),
        (f"{'x' * 80}.example:1", "no Ray cluster responds at"),
    ):
        with pytest.raises(UnfitError, match=said):
            client_address(address).expect_answer()
    looked_up = threading.Event()
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(socket, "create_connection", lambda *_: looked_up.wait())
    with pytest.raises(UnfitError, match=r"at ray://head:1: no cluster responded within 0\.05 s"):
        client_address("head:1").expect_answer()
    looked_up.set()


def test_variable_is_named_where_nobody_answers(monkeypatch, free_address):
    ray = SimpleNamespace(init=print, remote=print, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("RAY_ADDRESS", free_address)
    with pytest.raises(UnfitError, match=rf"responds at {free_address} \(RAY_ADDRESS\): "):
        open_and_close(RayCluster())


@pytest.fixture
def here(monkeypatch):
    """Return the address of a cluster on this machine, the file that names it, and the joined."""
    joined = []
    ray = SimpleNamespace(
        init=lambda **options: joined.append(options["address"]),
        remote=lambda task: task,
        shutdown=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    # Not below pytest's, which no other user can enter.
    with TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("RAY_TMPDIR", name)
        path = Path(name, "ray", "ray_current_cluster")
        path.parent.mkdir()
        path.parents[1].chmod(0o755)
        path.parent.chmod(0o755)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        path.write_text(address)
        path.chmod(0o644)
        yield address, path, joined


def test_local_is_a_cluster_of_ones_own_where_another_one_runs(monkeypatch, here):
    address, _, joined = here
    open_and_close(RayCluster())
    monkeypatch.setenv("RAY_ADDRESS", "local")
    open_and_close(RayCluster())
    assert joined == [address, "local"]


def of_another_user(path):
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(path, 4242, -1)


WEAK = {
    "file": lambda path: path.chmod(0o666),
    "folder": lambda path: path.parent.chmod(0o777),  # as `ray start` makes it
    "above": lambda path: path.parents[1].chmod(0o775),
    "owner": of_another_user,
    "owner of the folder": lambda path: of_another_user(path.parent),
}


@pytest.mark.parametrize("weaken", WEAK.values(), ids=WEAK)
def test_cluster_that_another_user_could_have_named_is_not_joined(here, weaken):
    _, path, joined = here
    weaken(path)
    notes = []
    open_and_close(RayCluster(notify=notes.append))
    assert joined == ["local"]
    (note,) = notes
    assert note.startswith(f"the Ray cluster of {path} is not joined: ")
    assert note.endswith(". Set RAY_ADDRESS=HOST:PORT to join a cluster")


def test_folder_that_all_can_write_below_one_that_none_can_enter_is_ones_own(here):
    address, path, joined = here
    path.parent.chmod(0o777)
    path.parents[1].chmod(0o700)
    open_and_close(RayCluster())
    assert joined == [address]


def test_file_that_names_no_cluster_is_passed_over(here):
    _, path, joined = here
    for text in (b"\xff", b"", b"x" * 1000, b"127.0.0.1:1"):
        path.write_bytes(text)
        open_and_close(RayCluster())
    assert joined == ["local"] * 4


def test_without_ray_the_message_says_what_to_install(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "ray", None)
    told = "--on ray needs Ray, which is not installed here: pip install 'losscli[ray]'.\n"
    for engine in ("ray", "ray://head:10001"):
        refused(f"judge k.py --on {engine}", told, EXIT_UNFIT)


BROKEN = {
    "": "module 'ray' has no attribute 'init'",
    "import no_such_module": "No module named 'no_such_module'",
    "raise TypeError('descriptors')": "descriptors",
}


def test_ray_that_does_not_work_is_told_with_the_reason(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)  # so that it is put back afterwards
    monkeypatch.syspath_prepend(folder)
    for source, why in BROKEN.items():
        (folder / "ray.py").write_text(source)
        importlib.invalidate_caches()
        sys.modules.pop("ray", None)
        assert main.run(["judge", "k.py", "--on", "ray"]) == EXIT_UNFIT
        error = capsys.readouterr().err
        assert f"`import ray` finds nothing that works: {why}." in error
        assert (str(folder / "ray.py") in error) == (not source)
