"""What bench and verify share: run jobs, report their results."""

import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from losscli.cli.interrupts import raise_if_received
from losscli.cli.variables import variables
from losscli.console.notes import Progress, note, say, status
from losscli.console.streams import tell
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UnfitError, UsageError
from losscli.files.record import now
from losscli.machine import description
from losscli.ranks.place import is_silent
from losscli.reasons import Code
from losscli.render.output import publish
from losscli.render.records import WHOLE, Writer, conclusion, render
from losscli.runs.parts import Part
from losscli.runs.records import FAIL, FAILED, SKIPPED, Exclusion, Kind, Result, Run


class Work(Protocol):
    """A unit of work, such as one case."""

    @property
    def name(self) -> str:
        """The name in the line of progress."""


AnyJob = TypeVar("AnyJob", bound=Work)
Item = TypeVar("Item")


def begin(
    kind: Kind, device: str, part: Part | None = None, facts: Mapping[str, Any] = {}, **more: Any
) -> Run:
    """Return a run without results, perhaps a part; ``facts`` join its environment."""
    return Run(
        kind=kind,
        command=(*map(_text, variables()), "losscli", *map(_text, sys.argv[1:])),
        created=now(),
        environment={**description.describe(device), **facts},
        parts=(str(part),) if part else (),
        **more,
    )


def refuse_empty(excluded: Sequence[Exclusion]) -> NoReturn:
    """Raise UsageError for a run without rows, with the rules that excluded them."""
    why = "; ".join(map(str, excluded)) or "no pass and implementation applies to any case"
    advice = "Change the config or the options"
    if excluded:
        advice = "Remove the rule, or name what it excludes on the command line"
    raise UsageError(f"nothing is left to run: {why}. {advice}.")


def run_jobs(
    run: Run,
    jobs: Iterable[AnyJob],
    results_of: Callable[[AnyJob], Generator[Result, None, None]],
    *,
    weights: Sequence[float],
    format: str,
    output: Path | None,
    saved: Path | None = None,
    keep_going: bool = True,
    guess: float | None = None,
    **shown: Any,
) -> int:
    """Run jobs, write the report, and return the exit code.

    ``weights`` are the jobs' relative times, ``guess`` the seconds of all; ``shown`` is the view's.
    """
    progress = Progress(weights, guess=guess)
    if not weights and not run.results:
        refuse_empty(run.excluded)
    writes = None if is_silent() else Writer(run, format, output, saved=saved, **shown)
    finished = False
    with writes or nullcontext() as writer, suppress(KeyboardInterrupt), progress:
        for job in jobs:
            progress.working_on(job.name)
            raise_if_received()
            with closing(results_of(job)) as found:
                for result in found:
                    raise_if_received()  # a second signal kills processes, so this is no result
                    if writer:
                        writer.add(result)
                    if not keep_going and result.status in (FAIL, FAILED):
                        break
                    progress.working_on(job.name)
                else:
                    progress.finished += 1
                    continue
            note("stopped at the first failure (--fail-fast)")
            break
        if writer:
            writer.unfinished = progress.finished < len(weights)
        finished = True
    if writer is None:  # another rank reports
        return EXIT_OK if finished else EXIT_INTERRUPTED
    if results := writer.run.results:
        publish(run.kind, lambda: render(writer.run, "md", **shown))
    if output and results:
        say(f"{conclusion(writer.run)}\n")
        note(f"wrote {output}")
    if saved and results:
        note(f"saved {saved.stem}")
    if not finished:
        what = "; the report has the finished results" if results else " before the first result"
        kept = saved.stem if saved else output if format in WHOLE else None
        if kept and results and run.kind == "bench":
            what += f"; --resume {kept} continues the run"
        tell(f"losscli: interrupted{what}")
        return EXIT_INTERRUPTED
    if not results:
        raise UsageError("no check applies to any configured case. --dry-run lists the cases.")
    if all(result.status == SKIPPED for result in results):
        too_large = getattr(results[0], "code", None) == Code.INSUFFICIENT_MEMORY
        advice = " Choose a smaller --size." * too_large
        raise UnfitError(f"nothing could run: {results[0].reason}.{advice}")
    return EXIT_FAILED if any(each.status in (FAIL, FAILED) for each in results) else EXIT_OK


def follow(
    items: Generator[Item, None, None], count: int, what: str
) -> Generator[Item, None, None]:
    """Yield ``count`` items as they come and show progress; ``what`` is being done."""
    with Progress([1.0] * count) as progress, closing(items):
        progress.working_on(what)
        for item in items:
            raise_if_received()  # a second signal kills processes, so this is no item
            status("")  # the item may go to the same terminal
            yield item
            raise_if_received()
            progress.finished += 1
            progress.working_on(what)


def _text(argument: str) -> str:
    """Return an argument as JSON text: a file name may not be UTF-8."""
    return argument.encode("utf-8", "backslashreplace").decode("utf-8")
