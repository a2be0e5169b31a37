"""What `losscli profile` reports: what bounds a call, and the launches that it consists of."""

from losscli.profile.record import Launch, Profile
from losscli.units import figure, format_seconds
from losscli.views.document import Document, Notes, Part, Sentence, Table

MOST = 12
LONGEST_NAME = 28


def view(profile: Profile, *, verbose: bool = False) -> Document:
    """Return the report of a profile."""
    shown = sorted(profile.launches, key=lambda each: -each.seconds)[:MOST]
    columns = [(name, cells) for name, cells in _columns(profile, shown) if any(cells)]
    rows = [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]
    lines = [f"and {len(profile.launches) - len(shown)} more"] * (
        len(profile.launches) > len(shown)
    )
    lines += [*profile.notes, _times(profile)]
    longest = shown[0] if shown else None
    if longest and longest.stall and longest.stall_share is not None:
        share = f"{longest.stall_share:.0%} of their time {longest.stall}"
        lines.append(f"the warps of {_short(longest.name)} spend {share}")
    return (
        Sentence(f"bound by {profile.bound}: {profile.why}"),
        Part(
            f"{profile.case}, {profile.pass_}, {profile.implementation} on {profile.device}",
            (Table([name for name, _ in columns], rows), Notes(lines)),
        ),
    )


def _times(profile: Profile) -> str:
    said = f"a call takes {format_seconds(profile.seconds)}"
    if profile.limit_share is not None:
        what = "matrix products"
        if profile.limit_gbps is not None:
            what = f"memory-bandwidth limit of {figure(profile.limit_gbps)} GB/s"
        said += f", {profile.limit_share:.1%} of the speed of its {what}"
    if profile.launches:
        what = "launch" if profile.launches[0].blocks is not None else "operator"
        plural = what + ("es" if what == "launch" else "s")
        number = len(profile.launches)
        said += f"; {number} {what if number == 1 else plural}, together "
        said += f"{format_seconds(profile.busy_seconds)} by {profile.profiler}"
    if profile.gap_seconds is not None:
        said += f", with {format_seconds(profile.gap_seconds)} between them"
    return said


def _columns(profile: Profile, launches: list[Launch]) -> list[tuple[str, list[str]]]:
    limit = profile.limit_gbps

    def rate(value: float | None) -> str:
        return "" if value is None else figure(value)

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.0%}"

    def number(value: int | None) -> str:
        return "" if value is None else f"{value:,}"

    def of_limit(launch: Launch) -> float | None:
        return launch.dram_gbps / limit if limit and launch.dram_gbps is not None else None

    return [
        ("kernel" if profile.device != "cpu" else "operator", [_short(e.name) for e in launches]),
        ("calls", [number(e.calls) if e.calls > 1 else "" for e in launches]),
        ("time", [format_seconds(each.seconds) for each in launches]),
        ("DRAM\nGB/s", [rate(each.dram_gbps) for each in launches]),
        ("% of\npeak", [share(of_limit(each)) for each in launches]),
        ("L2\nGB/s", [rate(each.l2_gbps) for each in launches]),
        ("blocks", [number(each.blocks) for each in launches]),
        ("registers", [number(each.registers) for each in launches]),
        ("occupancy", [share(each.occupancy or each.possible_occupancy) for each in launches]),
        ("issue", [share(each.issued) for each in launches]),
    ]


def _short(name: str) -> str:
    bare = name.partition("(")[0].removeprefix("void ").partition("<")[0]
    bare = bare.rpartition("::")[2] if "::" in bare else bare
    return bare if len(bare) <= LONGEST_NAME else bare[: LONGEST_NAME - 3] + "..."
