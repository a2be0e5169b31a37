"""The report of `losscli bench`: which implementation is faster, the times, what limits them."""

from collections import Counter
from collections.abc import Collection, Sequence
from statistics import geometric_mean

from losscli.cases.axes import CACHES, COLD, MODES, PASSES, WARM
from losscli.cases.case import Case, distinct_names
from losscli.compare.configurations import Configuration, compared
from losscli.compare.row_keys import long_name, median_of, mode_and_cache
from losscli.implementations import is_own
from losscli.reasons import Code
from losscli.runs.columns import COLUMNS, LEAST_IMPORTANT, MARKS, REFERENCE, Results, mark, versus
from losscli.runs.grouping import grouped
from losscli.runs.judgements import DIFFERENT_BEYOND, IMPOSSIBLE, IMPOSSIBLE_SHARE, UNCLEAR
from losscli.runs.records import FAILED, HOST_GAPS, SKIPPED, BenchResult, Run
from losscli.units import figure, first_of, format_bytes, format_seconds, format_ulp
from losscli.views.document import Document, Notes, Part, Sentence, Table, case_table
from losscli.views.phrases import caption, count, listed, short_pass, shorten, skips

NAMES = {
    REFERENCE: "eager PyTorch",
    "functional": "the usual PyTorch code",
    "compile": "torch.compile",
}
NAMED = 3


def view(run: Run, *, verbose: bool = False, columns: Sequence[str] = ()) -> Document:
    """Return the report of a bench; ``columns`` selects those of its tables."""
    ran = [result for result in run.of(BenchResult) if result.status != SKIPPED]
    shown = _tables(ran, columns)
    titled = (Part(title, (table,)) if title else table for title, table in shown.items())
    legend = _legend(ran, {header for table in shown.values() for header in table.headers})
    hint = ["-v explains the columns"] * bool(shown)
    measured = Part(caption(run), (*titled, Notes([legend] if verbose and shown else hint)))
    notes = Notes(_notes(run)), Notes(slower_configurations(run))
    return *map(Sentence, answers(run)), measured, *notes


def baseline_of(results: Results) -> str:
    """Return the baseline of ratios: the reference, else the first implementation."""
    if not results or any(REFERENCE in (r.implementation, *r.speedup) for r in results):
        return REFERENCE
    return results[0].implementation


def answers(run: Run) -> list[str]:
    """Return a sentence for each pass on the first implementation that is not PyTorch's."""
    results = run.of(BenchResult)
    baseline = baseline_of(results)
    names = dict.fromkeys([baseline, *(result.implementation for result in results)])
    _, *others = names
    subject = next((n for n in others if n not in NAMES), next(iter(others), baseline))
    others = [name for name in names if name != subject and not is_own(name)]
    own = sorted((r for r in results if r.implementation == subject), key=place)
    said = {pass_: _answer(of, others) for pass_, of in grouped(own, _what_was_timed).items()}
    return [f"{pass_}: {subject} {words}" for pass_, words in said.items() if words]


def _answer(results: Results, others: Sequence[str]) -> str:
    timed = [result for result in results if result.seconds and not result.impossible]
    parts = []
    against = [words for name in others if (words := _against(timed, name))]
    compared = (name for name in others if any(name in r.speedup for r in timed))
    unclear = [NAMES.get(name, name) for name in compared if not _decided(timed, name)]
    shares = [min(s, 1.0) for r in timed if (s := r.limit_share) and s < IMPOSSIBLE_SHARE]
    if against:
        parts.append(f"is {', '.join(against[:NAMED])}")
    if shares and (against or unclear):
        of = "the matrix products' speed" if timed[0].operations else "the peak memory bandwidth"
        most = "up to " * (len(shares) > 1)
        reached = f"{most}{100 * max(shares):.0f} % of {of}"
        parts = [f"{parts[0]}, at {reached}"] if parts else [f"reaches {reached}"]
    if unclear:
        parts.append(f"{'' if parts else 'is '}inconclusive against {', '.join(unclear[:NAMED])}")
    if timed and not parts:
        fastest = max(timed, key=lambda r: r.teraflops or r.gbps or 0)
        flops = fastest.teraflops
        speed = f"{flops:.3g} TFLOP/s" if flops else f"{figure(fastest.gbps or 0)} GB/s"
        parts.append(f"reaches {speed} ({count(len(timed), 'case')})")
    if ulps := [result.error.ulp for result in timed if result.error.ulp is not None]:
        parts.append(f"largest error {format_ulp(max(ulps))} ulp")
    if failed := sum(result.status == FAILED for result in results):
        parts.append(f"FAILED in {count(failed, 'case')}")
    if impossible := sum(result.impossible for result in results):
        parts.append(f"has an {IMPOSSIBLE} time in {count(impossible, 'case')}")
    return "; ".join(parts)


def _against(results: Results, other: str) -> str:
    """Return ``2.5x faster than eager PyTorch``, from conclusive ratios."""
    known = [result for result in results if other in result.speedup]
    decided, name = _decided(known, other), NAMES.get(other, other)
    if not decided:
        return ""
    mean = geometric_mean(decided)
    notes = [other] * (other in (REFERENCE, "functional"))
    notes += [f"geometric mean of {len(decided)} cases"] * (len(decided) > 1)
    notes += [f"{len(known) - len(decided)} inconclusive"] * (len(decided) < len(known))
    more = f" ({', '.join(notes)})" if notes else ""
    if mean > 1 + DIFFERENT_BEYOND:
        return f"{figure(mean)}x faster than {name}{more}"
    if mean < 1 / (1 + DIFFERENT_BEYOND):
        return f"{figure(1 / mean)}x slower than {name}{more}"
    return f"as fast as {name}{more}"


def _decided(results: Results, other: str) -> list[float]:
    return [r.speedup[other] for r in results if other in r.speedup and not _is_unclear(r, other)]


def _is_unclear(result: BenchResult, other: str) -> bool:
    found = result.ratios.get(other)
    return found is not None and found.verdict == UNCLEAR


def _tables(ran: Results, chosen: Sequence[str]) -> dict[str, Table]:
    mixed = {COLD, WARM} <= {result.cache for result in ran}
    names = case_names(ran)
    known = COLUMNS | {"speedup": versus(baseline_of(ran))}
    made = {}
    for title, results in grouped(ran, lambda result: result.table).items():
        columns = [known[name] for name in chosen or known if chosen or known[name].usual(results)]
        rows = []
        for r in results:
            pass_ = short_pass(r.pass_, r.mode, r.cache if mixed else "")
            row = [names[r.case], pass_, shorten(r.implementation)]
            rows.append([*row, *(column.cell(r) for column in columns)])
        headers = ["pass", "impl", *(column.header for column in columns)]
        least = [] if chosen else [known[name].header for name in LEAST_IMPORTANT]
        made[title] = case_table(headers, rows, least=least)
    return made


def line(result: BenchResult) -> str:
    """Return a result in one line: its time and ratios, or why it has none."""
    name = f"{result.case.name}, {_what_was_timed(result)}, {result.implementation}"
    if not result.seconds:
        return f"{name}: {result.status}: {result.reason}"
    ratios = [f"{figure(ratio)}x {NAMES.get(by, by)}" for by, ratio in result.speedup.items()]
    return f"{name}: {', '.join([format_seconds(result.seconds.median), *ratios])}"


def _legend(ran: Results, headers: Collection[str]) -> str:
    baseline = baseline_of(ran)
    column = versus(baseline)
    marks = {mark(result, baseline) for result in ran}
    own = any(is_own(result.implementation) for result in ran)
    known = (COLUMNS | {"speedup": column}).values()
    parts = [each.told for each in known if each.header in headers]
    if column.header in headers:
        parts += [meaning for sign, meaning in MARKS.items() if sign in marks]
    return "; ".join([*parts, *["custom: losscli's own kernel"] * own])


def _long_pass(result: BenchResult) -> str:
    return " ".join([long_name(result.pass_), *mode_and_cache(result.mode, "")])


def _what_was_timed(result: BenchResult) -> str:
    return _long_pass(result) + " with a warm cache" * (result.cache == WARM)


def place(result: BenchResult) -> tuple[int, ...]:
    """Return the sort key of a pass, mode and cache."""
    return MODES.index(result.mode), CACHES.index(result.cache), PASSES.index(result.pass_)


def case_names(results: Results) -> dict[Case, str]:
    """Return the name of each case without the dtype and reduction that all share."""
    cases = [result.case for result in results]
    axes = ({str(case.dtype) for case in cases}, {str(case.reduction) for case in cases})
    shared = [value for values in axes for value in values if len(values) == 1]
    named = distinct_names(cases).items()
    return {case: " ".join(w for w in name.split() if w not in shared) for case, name in named}


def _notes(run: Run) -> list[str]:
    results = run.of(BenchResult)

    def reason(r: BenchResult) -> str:
        return f"{r.case.name}, {r.implementation}, {_long_pass(r)}: {r.reason}"

    failed = (r for r in results if r.status == FAILED)
    texts = [
        f"FAILED {reason(first)}" + f" (and {count(len(others), 'other result')})" * bool(others)
        for first, *others in grouped(failed, lambda r: (r.implementation, r.reason)).values()
    ]
    impossible = (f"{IMPOSSIBLE} {reason(r)}" for r in results if r.impossible)
    texts += [text.replace(f": {IMPOSSIBLE}: ", ": ") for text in impossible]
    texts += [
        f"{r.case.name}, {r.implementation}, {long_name(r.pass_)}: took "
        f"{format_bytes(took)} of temporary memory; {format_bytes(planned)} were planned"
        for r in results
        if (took := r.peak_extra_bytes) is not None
        and (planned := r.planned_extra_bytes) is not None
        and took > planned + 64 * 2**20  # as workspaces may
    ]
    lossy = (r for r in results if r.code == Code.SAME_ERROR_AS_PYTORCH)
    texts += [
        f"{name} of {loss} has errors up to {format_ulp(max(r.error.ulp or 0.0 for r in found))} "
        f"ulp in single elements in {count(len(found), 'result')}, as PyTorch's own function has"
        for (name, loss), found in grouped(lossy, lambda r: (r.implementation, r.case.loss)).items()
    ]
    texts += skips(results)
    texts += dict.fromkeys(f"% of peak not measured: {r.no_limit}" for r in results if r.no_limit)
    texts += dict.fromkeys(f"energy not readable: {r.no_energy}" for r in results if r.no_energy)
    return [*texts, *_default_allocator(results), *_conditions(results), *map(str, run.excluded)]


def _default_allocator(results: Results) -> list[str]:
    def key(result: BenchResult) -> tuple[object, ...]:
        return result.table, result.case, result.pass_, result.mode

    theirs = {key(r): r.default_allocator_seconds for r in results if r.implementation == REFERENCE}
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for r in results:
        their, own = theirs.get(key(r)), r.default_allocator_seconds
        fair, which = r.speedup.get(REFERENCE), (r.implementation, _what_was_timed(r))
        if fair and own and their and not _is_unclear(r, REFERENCE):
            pairs.setdefault(which, []).append((fair, their / own))
    texts = []
    for (name, pass_), each in pairs.items():
        fair, default = map(geometric_mean, zip(*each, strict=True))
        if max(fair / default, default / fair) > 1.1:
            texts.append(
                f"{pass_}: with the system's default allocator, which does not keep freed memory, "
                f"{name} is {figure(default)}x as fast as reference, instead of {figure(fair)}x"
            )
    return texts


def _conditions(results: Results) -> list[str]:
    timed = [result for result in results if result.conditions]
    of, texts = f"of {count(len(timed), 'result')}", []
    if busy := [result for result in timed if result.busy]:
        most = min(max(result.conditions["others"] for result in busy), 1.0)
        what = "cores" if busy[0].case.device == "cpu" else "GPU"
        cases = first_of(dict.fromkeys(result.case.name for result in busy), NAMED)
        said = f"the machine was busy: other programs took up to {most:.0%} of its {what}"
        texts.append(f"{said} during {len(busy)} {of}: {cases}")
    if waited := sum(HOST_GAPS in result.conditions for result in timed):
        texts.append(f"the GPU waited for the host during samples of {waited} {of}")
    every = (result.conditions.get("throttle_reasons", ()) for result in timed)
    reasons = Counter(reason for each in every for reason in each)
    return [*texts, *(f"the GPU was throttled during {n} {of}: {r}" for r, n in reasons.items())]


def slower_configurations(run: Run) -> list[str]:
    """Return the configurations in which custom is slower than a baseline, or may be."""
    every = compared(run)
    found = [each for each in every if each.custom.seconds]
    slower = [_describe(each) for each in found if each.slower_than]
    others = [each for each in found if not each.slower_than]
    unclear = [_describe(each) for each in others if each.is_behind(each.best_baseline)]
    untimed = [f"{_named(each)}: {each.custom.status}" for each in every if not each.custom.seconds]
    of = f"of {count(len(found), 'configuration')}"
    groups = {
        f"custom is slower than the fastest baseline in {len(slower)} {of}:": slower,
        f"inconclusive in {len(unclear)} {of}; custom may be slower there:": unclear,
        f"custom has no time in {count(len(untimed), 'configuration')}:": untimed,
    }
    return [line for title, rows in groups.items() for line in listed(title, rows, len(rows))]


def _named(each: Configuration) -> str:
    return f"{each.custom.case.name}, {_long_pass(each.custom)}"


def _describe(each: Configuration) -> str:
    baseline = each.best_baseline
    own, their = (format_seconds(median_of(one)) for one in (each.custom, baseline))
    ratio = f"{each.ratio(baseline):.2f}x"
    return f"{_named(each)}: {own} against {their} of {baseline.implementation}, {ratio}"
