import pytest

from losscli.render.output import LARGEST_SUMMARY, STEP_SUMMARY, publish


def test_outside_github_actions_nothing_is_rendered():
    publish("bench", lambda: pytest.fail("rendered"), {})


def test_each_report_is_appended_under_its_title(tmp_path):
    environ = {STEP_SUMMARY: str(tmp_path / "summary.md")}
    for title in ("bench", "compare"):
        publish(title, lambda: "| a |", environ)
    assert (tmp_path / "summary.md").read_text() == (
        "## losscli bench\n\n| a |\n\n## losscli compare\n\n| a |\n\n"
    )


def test_summary_that_is_too_long_is_cut_after_a_line(tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("x" * 1000)
    publish("bench", lambda: "é" * 99 + "\n" + "| row |\n" * 200_000, {STEP_SUMMARY: str(summary)})
    text = summary.read_text()
    assert LARGEST_SUMMARY - 200 < len(text.encode()) <= LARGEST_SUMMARY
    assert text.endswith("| row |\n\nThe rest is too long for a step summary.\n\n")
