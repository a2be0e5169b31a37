"""The report of `losscli profile`: what bounds a call, and its launches."""

from collections.abc import Callable

from losscli.compare.row_keys import long_name
from losscli.profile.record import Launch, Profile
from losscli.units import figure, format_seconds
from losscli.views.document import Document, Notes, Part, Sentence, Table
from losscli.views.phrases import count

LONGEST_NAME = 28


def view(profile: Profile) -> Document:
    """Return the report of a profile."""
    shown = sorted(profile.launches, key=lambda each: -each.seconds)[:12]
    columns = {name: list(map(cell, shown)) for name, cell in _columns(profile).items()}
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    more = len(profile.launches) - len(shown)
    lines = [f"and {more} more"] * bool(more)
    if "issue" in columns:
        lines.append("issue: the cycles in which a scheduler issues an instruction")
    lines += [*profile.notes, _times(profile)]
    longest = shown[0] if shown else None
    if longest and longest.stall and longest.stall_share is not None:
        share = f"{longest.stall_share:.0%} of their time {longest.stall}"
        lines.append(f"the warps of {_short(longest.name)} spend {share}")
    call = f"{profile.case}, {long_name(profile.pass_)}, {profile.implementation}"
    table = Table([*columns], [*zip(*columns.values(), strict=True)])
    answer = Sentence(f"bound by {profile.bound}: {profile.why}")
    return answer, Part(f"{call} on {profile.device}", (table, Notes(lines)))


def _times(profile: Profile) -> str:
    said = f"a call takes {format_seconds(profile.seconds)}"
    if profile.peak_fraction is not None:
        what = "speed of its matrix products"
        if profile.limit_gbps is not None:
            what = f"peak memory bandwidth, {figure(profile.limit_gbps)} GB/s"
        said += f", {profile.peak_fraction:.1%} of the {what}"
    if number := len(profile.launches):
        what = count(number, "operator")
        if profile.launches[0].blocks is not None:
            what = "1 launch" if number == 1 else f"{number} launches"
        said += f"; {what}, together {format_seconds(profile.busy_seconds)} by {profile.profiler}"
    if profile.gap_seconds is not None:
        said += f", with {format_seconds(profile.gap_seconds)} between them"
    return said


def _columns(profile: Profile) -> dict[str, Callable[[Launch], str]]:
    peak = profile.limit_gbps

    def known(value: float | None, text: Callable[[float], str]) -> str:
        return "" if value is None else text(value)

    share, number = "{:.0%}".format, "{:,}".format
    return {
        "kernel" if profile.device != "cpu" else "operator": lambda each: _short(each.name),
        "calls": lambda each: number(each.calls) if each.calls > 1 else "",
        "time": lambda each: format_seconds(each.seconds),
        "DRAM\nGB/s": lambda each: known(each.dram_gbps, figure),
        "% of\npeak": lambda each: known(peak and each.dram_gbps and each.dram_gbps / peak, share),
        "L2\nGB/s": lambda each: known(each.l2_gbps, figure),
        "blocks": lambda each: known(each.blocks, number),
        "registers": lambda each: known(each.registers, number),
        "occupancy": lambda each: known(each.occupancy or each.possible_occupancy, share),
        "issue": lambda each: known(each.issued, share),
    }


def _short(name: str) -> str:
    bare = name.partition("(")[0].removeprefix("void ").partition("<")[0]
    bare = bare.rpartition("::")[2] if "::" in bare else bare
    return bare if len(bare) <= LONGEST_NAME else bare[: LONGEST_NAME - 3] + "..."
