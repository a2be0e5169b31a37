"""Starts, calls and ends workers: the judge's side of the sandbox."""

import os
import select
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import torch

from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.errors import UnfitError, printable
from losscli.implementations import errors
from losscli.implementations.allowance import Allowance
from losscli.implementations.implementation import PLAIN, Mends, Setting
from losscli.implementations.local import R, Request
from losscli.implementations.sandbox import wire, zygote
from losscli.implementations.sandbox.confinement import Wanted, environment
from losscli.implementations.sandbox.confinement.limits import TOO_MANY_PROCESSES, TOO_MUCH_MEMORY
from losscli.implementations.sandbox.isolation_parts import missing
from losscli.implementations.sandbox.program import packages_of
from losscli.implementations.sandbox.scratch import scratch_directory
from losscli.implementations.sandbox.worker_requests import Load
from losscli.implementations.source import Source
from losscli.machine.memory import free_bytes
from losscli.processes import Channel, how_ended
from losscli.reasons import Code
from losscli.units import format_bytes

END_SECONDS = 5.0
_LOG_BYTES = 2**16
"""Kept bytes of a worker's first and of its last output."""
_POLL_SECONDS = 0.001
LARGE_BYTES = 2**26
"""Bytes of results from which memory is returned after each reply."""


class Worker:
    """A worker with one file."""

    def __init__(
        self, file: Source, device: str, setting: Setting = PLAIN, *, unmarked: bool = False
    ) -> None:
        """Start it, and import the file unless ``unmarked``; raise a SandboxError if that fails."""
        self.file, self.device = file, device
        allowance = setting.allowance or Allowance()
        most_bytes = allowance.bytes_of(free_bytes("cpu"))
        self.allowance = msgspec.structs.replace(allowance, memory_bytes=most_bytes)
        self.died: errors.SandboxError | None = None
        self.tuned = self._has_run = False
        self.reached: tuple[str, ...] = ()
        self._own_scratch: Path | None = None
        self.files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("operands", "results")]
        operands, results = self.files
        self.tensors = wire.JudgeEnd(operands, results, device)
        ours, theirs = socket.socketpair()
        self.status, status_end = os.pipe()
        self.channel = Channel(ours)
        self.log = Log(self.allowance.output_bytes, partial(self._signal, signal.SIGTERM))
        wanted = Wanted(
            device=device,
            memory_bytes=most_bytes,
            processes=self.allowance.processes,
            scratch=str(scratch_directory().absolute()),
            environ=environment.of_workers(os.environ, cached=file.imports_losscli),
            shown=[] if file.revision else [str([*packages_of(file.path), file.path.parent][0])],
            hidden=environment.hidden_from_workers(cached=file.imports_losscli),
        )
        descriptors = (theirs.fileno(), self.log.writing, status_end, operands, results)
        self.keeper = 0
        try:
            self._zygote, self.keeper = zygote.fork(wanted, descriptors)
        finally:
            theirs.close()
            os.close(status_end)
            os.close(self.log.writing)
        try:
            ready = self._reply(zygote.START_SECONDS)
            if isinstance(ready, wire.Raised):  # before anything of the file runs
                raise UnfitError(f"a worker cannot be isolated: {ready.text}.")
            if not isinstance(ready, wire.Ready):
                raise self._forged("no greeting")
            self.reached = tuple(ready.reached)
            if "temporary files" not in self.reached:
                self._own_scratch = Path(ready.scratch)
            if setting.require_isolation and (lacks := missing(self.reached)):
                text = f"isolation is required, and this machine lacks: {', '.join(lacks)}"
                raise errors.NotIsolatedError(text)
            built = torch.empty(0, dtype=torch.uint8)
            with suppress(OSError):  # without it the file compiles again
                if setting.built:
                    packed = bytearray(Path(setting.built).read_bytes())
                    built = torch.frombuffer(packed, dtype=torch.uint8)
            self._has_run = True
            known = replace(file, reduction="mean", parameters={})  # what else only the judge knows
            self.ask(Load(known, setting.order, unmarked, built))
            os.ftruncate(operands, 0)
        except BaseException as error:
            log = self.end()
            if isinstance(error, errors.SandboxError):
                error.log, error.reached = log, self.reached
            raise

    def ask(
        self, request: Request[R], case: Case | None = None, generation: int = 0, mends: Mends = ()
    ) -> R:
        """Return the response; SubjectError or OutOfMemoryError, SandboxError from the sandbox."""
        if self.died:
            raise self.died
        number = int.from_bytes(os.urandom(6))
        model = case if isinstance(case, ModelCase) else None
        plain = None if model else case
        asked = wire.Asked(number, *self.tensors.encode(request), plain, model, generation, mends)
        try:
            wire.send(self.channel, asked)
        except OSError:
            raise self._ended() from None
        most = self.allowance
        seconds = most.build_seconds if request.takes_long else most.call_seconds
        reply = self._answer(number, seconds)
        if self.tuned and request.is_timed:
            text = "tunes a kernel between samples, which are not of one kernel"
            raise errors.SubjectError(text, Code.TIMING_TAMPERING)
        if isinstance(reply, wire.Raised):
            if isinstance(request, Load):  # whatever a file says of its own import
                raise errors.NotBuiltError(reply.text, compiler=reply.kind == "build")
            raise self._error(reply)
        try:
            response: R = self.tensors.decode(reply.value, request.response_type())
            if not request.accepts(response):
                raise ValueError(f"no response to {type(request).__name__}")
            if not request.owns_operands:
                self.tensors.take_back(reply.changed)
        except (ValueError, TypeError, KeyError, RuntimeError, msgspec.MsgspecError) as error:
            raise self._forged(str(error)) from None
        if os.fstat(self.files[1]).st_size > LARGE_BYTES:
            os.ftruncate(self.files[1], 0)
        return response

    def end(self) -> str:
        """End the worker and its children; return its output."""
        if self.channel.socket.fileno() >= 0:
            self._end_processes()
            self.channel.socket.close()
            for file in (self.status, *self.files):
                os.close(file)
            if self._own_scratch:
                shutil.rmtree(self._own_scratch, ignore_errors=True)
        return self.log.end()

    def _answer(self, number: int, seconds: float) -> wire.Replied | wire.Raised:
        reply = self._reply(seconds)
        self.tuned, over = False, time.monotonic() + self.allowance.tuning_seconds
        # Each process that a request starts reports its own tuning.
        while isinstance(reply, wire.Tunes) and reply.number == number:
            self.tuned = True
            reply = self._reply(max(over - time.monotonic(), 0.0))
        if isinstance(reply, wire.Raised) and reply.kind == "forked":
            raise self._fatal(Code.LEFT_PROCESS, reply.text)
        if isinstance(reply, wire.Ready | wire.Tunes) or reply.number != number:
            raise self._forged("a response without a request")
        return reply

    def _reply(self, seconds: float) -> wire.Reply:
        reply: wire.Reply | None = None
        try:
            if (data := self.channel.receive(seconds)) is not None:
                reply = msgspec.json.decode(data, type=wire.Reply)
        except TimeoutError:
            raise self._fatal(Code.HANGS, f"did not respond within {seconds:g} s") from None
        except OSError:
            raise self._ended() from None
        except (ValueError, msgspec.MsgspecError) as error:
            raise self._forged(str(error)) from None
        if reply is None:
            raise self._ended()
        if isinstance(reply, wire.Raised):
            reply.text = printable(reply.text)
        return reply

    def _error(self, raised: wire.Raised) -> Exception:
        if raised.kind == "out_of_memory":
            if self.device == "cpu":
                most = format_bytes(self.allowance.memory_bytes)
                text = f"took more memory than the {most} it may"
                return errors.SandboxError(text, Code.MEMORY_LIMIT)
            return torch.OutOfMemoryError(raised.text)
        if raised.kind == "no_second_derivatives":
            return errors.NoSecondDerivativesError(raised.text)
        if raised.kind == "build":
            return errors.NotBuiltError(raised.text, compiler=True)
        if raised.kind == "error":  # only what starts a worker reports one
            return self._forged("an error of losscli itself")
        if raised.broke:
            return self._fatal(Code.DEVICE_ERROR, raised.text)
        return errors.SubjectError(raised.text, raised.code, refused=raised.refused)

    def _ended(self) -> errors.SandboxError:
        if self.log.flooded:
            text = f"wrote more than {self.allowance.output_bytes} bytes of output"
            return self._fatal(Code.FLOODED_OUTPUT, text)
        told = self._status()
        if told is None:
            return self._fatal(Code.PROCESS_DIED, "its process ended, but left others running")
        if not told or self._zygote.poll() is not None:  # then its keeper has ended it
            return self._fatal(Code.INTERRUPTED, self._why_interrupted())
        if (code := int(told)) == TOO_MUCH_MEMORY:
            most = format_bytes(self.allowance.memory_bytes)
            text = f"its processes took more memory than the {most} they may"
            return self._fatal(Code.MEMORY_LIMIT, text)
        text = f"its process ended {how_ended(code)}"
        if code == TOO_MANY_PROCESSES:
            text = f"it had more than {self.allowance.processes} processes and threads"
        return self._fatal(Code.PROCESS_DIED, text)

    def _why_interrupted(self) -> str:
        """Name the losscli process that ended, as no keeper has reported the worker's end."""
        code = self._zygote.poll()
        starts = code is not None and f"starts workers ended {how_ended(code)}"
        what = starts or "keeps the worker was killed"
        told = f"losscli's process that {what}, as when the system runs out of memory"
        if self._has_run and "signals" not in self.reached:
            told += "; the file may have killed it, for signals are not isolated here"
        return told

    def _forged(self, what: str) -> errors.SandboxError:
        text = f"something else than losscli wrote to the judge's channel: {what[:100]}"
        return self._fatal(Code.WROTE_TO_CHANNEL, text)

    def _fatal(self, code: Code, text: str) -> errors.SandboxError:
        self.died = errors.SandboxError(text, code)
        self._end_processes()
        return self.died

    def _end_processes(self) -> None:
        self._signal(signal.SIGTERM)
        self._status()
        limit = time.monotonic() + END_SECONDS
        while self._signal(signal.SIGKILL) and time.monotonic() < limit:
            time.sleep(_POLL_SECONDS)
        self.keeper = 0

    def _signal(self, number: int) -> bool:
        """Signal the keeper, resume it if stopped, and tell whether it existed."""
        if not self.keeper:  # the signal would reach the judge's own group
            return False
        with suppress(ProcessLookupError):
            os.kill(self.keeper, number)
            os.kill(self.keeper, signal.SIGCONT)
            return True
        return False

    def _status(self) -> str | None:
        """Return the exit code from the keeper: empty if killed, None if workers keep it alive."""
        self._signal(0)
        ready, _, _ = select.select([self.status], [], [], END_SECONDS)
        return os.read(self.status, 64).decode() if ready else None


class Log:
    """The first and last parts of a worker's output."""

    def __init__(self, most: int, stop: Callable[[], object]) -> None:
        """``stop`` is called once there are more than ``most`` bytes."""
        self.reading, self.writing = os.pipe()
        self.most, self.stop, self.flooded = most, stop, False
        self.count = 0
        self.head, self.tail = b"", b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while data := os.read(self.reading, 2**16):
            self.count += len(data)
            missing = _LOG_BYTES - len(self.head)
            self.head += data[:missing]
            self.tail = (self.tail + data[missing:])[-_LOG_BYTES:]
            if self.count > self.most and not self.flooded:
                self.flooded = True
                self.stop()
        os.close(self.reading)

    def end(self) -> str:
        """Read the remaining output; return what was kept of all."""
        self._thread.join(END_SECONDS)
        left_out = self.count - len(self.head) - len(self.tail)
        between = f"\n[{left_out} bytes left out]\n" if left_out > 0 else ""
        head, tail = (part.decode(errors="replace") for part in (self.head, self.tail))
        return printable(head + between + tail)
