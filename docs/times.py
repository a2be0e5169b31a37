"""Tables of times: a row a loss or a case, with losscli's time and those of its baselines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from docs.markdown import table
from losscli.cases.case import Case
from losscli.compare.configurations import Configuration, configurations
from losscli.implementations import CUSTOM
from losscli.implementations.other_projects import PACKAGES
from losscli.losses.elementwise.weighting import is_weighted
from losscli.runs.columns import SMALL
from losscli.runs.judgements import IMPOSSIBLE
from losscli.runs.records import BenchResult, Run
from losscli.units import format_bytes, format_seconds, format_ulp
from losscli.views.phrases import SHORT_PASSES

WIDTH = 100
EAGER = ("reference", "functional")
PEERS = (*EAGER, "compile")
OTHERS = ("compile", *(implementation.name for implementation in PACKAGES))
"""The baselines that have a column of their own in a table of row-wise losses."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
SHARDING = (*EAGER, "loss_parallel", "liger")
"""The baselines that have a column of their own in a table of losses over ranks."""
LARGE = 2**22
"""The least elements of a case in a table of row-wise losses: less is not bound by memory."""


def environment(run: Run) -> str:
    """Return a sentence on the machine and on what ran there."""
    facts = run.environment
    cpu = f"{facts['cpu_cores']} cores of {facts['cpu']}"
    parts = [f"{cpu}, {format_bytes(facts['cpu_cache_bytes'])} of cache"]
    torch = f"torch {facts['torch']}"
    if facts["gpu"]:
        memory, cache = (format_bytes(facts[f"gpu_{name}_bytes"]) for name in ("memory", "cache"))
        gpus = NUMBERS[len(facts.get("ranks") or (0,))]
        parts = [
            f"{gpus} {facts['gpu']}: {facts['gpu_sms']} multiprocessors, {memory}, {cache} of L2",
            f"driver {facts['gpu_driver']}",
            cpu,
        ]
        torch += f" with CUDA {facts['torch_cuda']}"
    day = run.created.partition("T")[0]
    return textwrap.fill(f"Measured on {'; '.join([*parts, torch])}; {day}.", WIDTH)


def bench(run: Run) -> str:
    """Return a row per case and pass: losscli's time, that of each baseline, and the ratios."""
    rows = []
    for group in beside_peers(run):
        custom = group[0][CUSTOM]
        rows.append(
            [
                custom.case.loss,
                SHORT_PASSES[custom.pass_],
                _time(custom),
                f"{custom.gbps:,.0f}" if custom.gbps else "",
                _share(custom),
                *(_peer(group, peer) for peer in PEERS),
                "" if custom.peak_extra_bytes is None else format_bytes(custom.peak_extra_bytes),
            ]
        )
    headers = ["loss", "pass", CUSTOM, "GB/s", "% of peak", *PEERS, "temp memory"]
    return table(headers, rows)


def losses(run: Run) -> str:
    """Return a row per loss: for each pass losscli's time, and the faster eager one's ratio."""
    rows: dict[str, dict[str, list[str]]] = {}
    for group in beside_peers(run):
        custom = group[0][CUSTOM]
        ratios = {peer: ratio for peer in EAGER if (ratio := _speedup(group, peer))}
        faster = min(ratios, key=ratios.__getitem__, default="")
        said = f"{ratios[faster]:.2f}x {faster}" if faster else ""
        rows.setdefault(custom.case.loss, {})[custom.pass_] = [_time(custom), said]
    headers = [header for pass_ in SHORT_PASSES.values() for header in (pass_, f"{pass_}, speedup")]
    body = [
        [loss, *(cell for pass_ in SHORT_PASSES for cell in passes.get(pass_, ["", ""]))]
        for loss, passes in rows.items()
        if not is_weighted(loss)
    ]
    return table(["loss", *headers], body)


def limits(run: Run) -> str:
    """Return a row per loss and dtype: for each pass the time, the share, and the ratios."""
    rows: dict[tuple[str, str], list[str]] = {}
    for group in beside_peers(run):
        custom = group[0][CUSTOM]
        row = rows.setdefault((custom.case.loss, custom.case.dtype), [])
        ratios = [_speedup(group, peer) for peer in ("reference", "compile")]
        row += [
            _time(custom),
            _share(custom),
            *(f"{ratio:.2f}x" if ratio else "" for ratio in ratios),
        ]
    columns = ["% of peak", "vs reference", "vs compile"]
    passes = [[pass_, *columns] for pass_ in SHORT_PASSES.values()]
    headers = ["loss", "dtype", *(header for pass_ in passes for header in pass_)]
    return table(headers, [[*key, *row] for key, row in rows.items()])


def floors(run: Run) -> str:
    """Return a row per loss and pass: the bytes to move, the speed of the limit, and the shares."""
    rows = []
    for group in beside_peers(run):
        custom = group[0][CUSTOM]
        limit = custom.limit_gbps
        rows.append(
            [
                custom.case.loss,
                SHORT_PASSES[custom.pass_],
                f"{custom.bytes / custom.case.elements:.0f}",
                f"{limit:,.0f}" if limit else "",
                format_seconds(custom.bytes / limit / 1e9) if limit else "",
                *(_share(group[0][name]) if name in group[0] else "" for name in (CUSTOM, *PEERS)),
            ]
        )
    headers = ["loss", "pass", "bytes per element", "limit, GB/s", "floor"]
    return table([*headers, *(f"{name}, %" for name in ("losscli", *PEERS))], rows)


def rows(run: Run) -> str:
    """Return a row per case of 2^22 elements or more: times and shares of both passes."""
    cases: dict[str, list[list[Configuration]]] = {}
    for group in beside_peers(run):
        case = group[0][CUSTOM].case
        if case.elements >= LARGE:
            cases.setdefault(_without(case.name, "mean", case.distribution), []).append(group)
    body = []
    for name, passes in cases.items():
        firsts = [group[0] for group in passes]
        eager = [_fastest(cell, EAGER) for cell in firsts]
        columns = [
            [_time(cell[CUSTOM]) for cell in firsts],
            [_share(cell[CUSTOM]) for cell in firsts],
            [_time(result) if result else "" for result in eager],
            *([_time(c[peer]) if peer in c else "" for c in firsts] for peer in OTHERS),
            [f"{ratio_to_best(cell):.2f}x" for cell in firsts],
        ]
        body.append([name, *map(_both, columns)])
    headers = ["case", CUSTOM, "% of peak", "fastest of PyTorch", *OTHERS, "speedup"]
    return table(headers, body)


def linear(run: Run) -> str:
    """Return a row per case of hidden states: losscli's time, share of the products, and memory.

    Then time and memory of each baseline.
    """
    rows = []
    for group in configurations(run):
        custom = group.get(CUSTOM)
        if custom is None or not custom.operations:
            continue
        name = _without(custom.case.name, custom.case.reduction, custom.case.distribution)
        speed = f"{custom.teraflops:,.0f}" if custom.teraflops else ""
        peers = [_with_memory(group[peer]) if peer in group else "" for peer in (*EAGER, *OTHERS)]
        own = [_time(custom), speed, _share(custom), _extra(custom)]
        rows.append([name, SHORT_PASSES[custom.pass_], *own, *peers])
    headers = ["case", "pass", CUSTOM, "TFLOP/s", "% of peak", "temp memory", *EAGER, *OTHERS]
    return table(headers, rows)


def sharded(run: Run) -> str:
    """Return a row per case over ranks: losscli's time, its collective, and the baselines' times.

    Each time has the peak temporary memory, and a baseline's also the ratio.
    """
    rows = []
    for group in configurations(run):
        custom = group.get(CUSTOM)
        if custom is None or not custom.seconds or not custom.collective:
            continue
        case = custom.case
        words = (case.reduction, case.distribution, f"ranks={case.ranks}")
        peers = []
        for peer in SHARDING:
            found = group.get(peer)
            told = [f"{custom.speedup[peer]:.2f}x"] if peer in custom.speedup else []
            peers.append(", ".join([_with_memory(found), *told]) if found else "")
        exchanged = custom.collective
        rows.append(
            [
                f"{_without(case.name, *words)}, {SHORT_PASSES[custom.pass_]}",
                _time(custom),
                _share(custom),
                _extra(custom),
                f"{exchanged.bytes / case.shape[0]:.0f}",
                format_seconds(exchanged.seconds),
                *peers,
            ]
        )
    own = [CUSTOM, "% of peak", "temp memory", "bytes per row", "collective alone"]
    return table(["case", *own, *SHARDING], rows)


def host(run: Run) -> str:
    """Return how long a call keeps the host busy, where the tensors are small."""
    rows = []
    for cell, *_ in beside_peers(run):
        custom = cell[CUSTOM]
        if custom.case.elements > SMALL or not custom.host_seconds:
            continue
        row = [custom.case.loss, SHORT_PASSES[custom.pass_], elements(custom.case)]
        row.append(format_seconds(custom.host_seconds, 3))
        for peer in PEERS:
            seconds = cell[peer].host_seconds if peer in cell else None
            ratio = (seconds or 0) / custom.host_seconds
            row.append(f"{format_seconds(seconds, 3)} ({ratio:.1f}x)" if seconds else "")
        rows.append(row)
    return table(["loss", "pass", "elements", CUSTOM, *PEERS], rows)


def strategies(run: Run) -> str:
    """Return a row per way to finish the sum: its time at each size, and its largest error."""
    rows: dict[str, dict[str, BenchResult]] = {}
    for cell in configurations(run):
        if CUSTOM in cell and not cell.baselines:
            for name, result in cell.items():
                rows.setdefault(name, {})[elements(result.case)] = result
    sizes = list(dict.fromkeys(size for row in rows.values() for size in row))
    body = []
    for name, row in rows.items():
        errors = [r.error.value_ulp for r in row.values() if r.error.value_ulp is not None]
        times = [_time(row[size]) if size in row else "" for size in sizes]
        body.append([f"`{name}`", *times, format_ulp(max(errors)) if errors else ""])
    return table(["implementation", *sizes, "largest error, ULP"], body)


def beside_peers(run: Run) -> list[list[Configuration]]:
    """Return the configurations of each case and pass, of each table that has baselines."""
    groups: dict[tuple[str, str], list[Configuration]] = {}
    for cell in configurations(run):
        if CUSTOM in cell and cell.baselines:
            groups.setdefault((cell[CUSTOM].case.name, cell[CUSTOM].pass_), []).append(cell)
    return list(groups.values())


def _time(result: BenchResult) -> str:
    return format_seconds(result.seconds.median) if result.seconds else result.status


def _share(result: BenchResult) -> str:
    if result.impossible:
        return IMPOSSIBLE
    return f"{100 * result.limit_share:.1f}" if result.limit_share else ""


def _extra(result: BenchResult) -> str:
    return "" if result.peak_extra_bytes is None else format_bytes(result.peak_extra_bytes)


def _with_memory(result: BenchResult) -> str:
    return ", ".join(filter(None, (_time(result), _extra(result))))


def _both(passes: Sequence[str]) -> str:
    """Return what is told of both passes; nothing where neither has it."""
    return " / ".join(each or "-" for each in passes) if any(passes) else ""


def _fastest(cell: Configuration, names: Sequence[str]) -> BenchResult | None:
    """Return the fastest of some peers; None where none of them has a time."""
    timed = [cell[name] for name in names if name in cell and cell[name].seconds]
    return min(timed, key=lambda r: r.seconds.median if r.seconds else 0.0, default=None)


def _speedup(group: Sequence[Configuration], peer: str) -> float | None:
    """Return a peer's median over losscli's, from the first table in which both have one."""
    return next((r for cell in group if (r := cell[CUSTOM].speedup.get(peer))), None)


def _peer(group: Sequence[Configuration], peer: str) -> str:
    """Return a peer's time and the ratio; of another table than the first the ratio alone."""
    ratio = _speedup(group, peer)
    if not ratio:
        return ""
    first = group[0].get(peer)
    return f"{_time(first)} ({ratio:.2f}x)" if first and first.seconds else f"{ratio:.2f}x"


def ratio_to_best(cell: Configuration) -> float:
    """Return the fastest baseline's time over losscli's."""
    return cell.ratio(cell.best_baseline)


def _without(name: str, *words: str) -> str:
    return " ".join(word for word in name.split() if word not in words)


def elements(case: Case) -> str:
    """Return the number of elements of a case, as a power of two if it is one."""
    power = case.elements.bit_length() - 1
    return f"2^{power}" if power and case.elements == 1 << power else str(case.elements)
