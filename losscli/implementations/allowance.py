"""The resource limits of third-party code."""

from losscli.files.record import Record


class Allowance(Record, frozen=True, forbid_unknown_fields=True):
    """What a candidate may use at most."""

    build_seconds: float = 600.0
    """Seconds of import and compilation."""
    call_seconds: float = 60.0
    """Seconds of one request: a few calls, or a batch of samples."""
    tuning_seconds: float = 1200.0
    """Seconds of one request that tunes a kernel."""
    total_seconds: float = 1800.0
    """Seconds of all stages of a judgement."""
    memory_bytes: int = 0
    """Bytes of all the candidate's processes on the host, and of a file it writes; 0 is half of
    free memory."""
    processes: int = 4096
    """Processes and threads of the candidate; 256 cores have as many in each of several pools. 0 is
    no limit."""
    output_bytes: int = 16 * 2**20
    """Bytes written to stdout and stderr."""

    def bytes_of(self, free: int) -> int:
        """Return the bytes that the candidate may use if so many are free."""
        return self.memory_bytes or free // 2
