"""The limits on what third-party code may use."""

from __future__ import annotations

from losscli.files.record import Record


class Allowance(Record, frozen=True, forbid_unknown_fields=True):
    """What a candidate may use at most."""

    build_seconds: float = 600.0
    """Seconds of import and compilation."""
    call_seconds: float = 60.0
    """Seconds of one question: a few calls, or a batch of samples."""
    tuning_seconds: float = 1200.0
    """Seconds of one question in which a kernel is tuned."""
    total_seconds: float = 1800.0
    """Seconds of all stages of a judgement."""
    memory_bytes: int = 0
    """Bytes of the candidate's processes together on the host, and of a file that it writes; 0 is
    half of what is free."""
    processes: int = 4096
    """Processes of the candidate, with their threads: 256 cores have as many in each of several
    pools. 0 is no limit."""
    output_bytes: int = 16 * 2**20
    """Bytes that it writes to stdout and stderr."""
