"""Probes of NVIDIA's driver and the GPU; most have no answer without a GPU."""

from losscli.build.nvcc import Requirements, parse_version
from losscli.build.toolchain import dotted
from losscli.doctor import questions
from losscli.doctor.findings import Observation, ok, problem, warning
from losscli.doctor.machine import Machine
from losscli.units import finite, format_bytes

HIDDEN_BYTES = 2**30
_NO_SMI = "nvidia-smi does not report it"


def driver(machine: Machine) -> Observation | None:
    """Check that the driver runs torch's CUDA."""
    found, trouble = machine.driver.cuda, machine.driver.trouble
    make = problem if machine.on_gpu else warning
    if trouble:
        advice = "Reboot, or reinstall the driver."
        return make(f"NVIDIA's driver does not respond: {trouble}", advice)
    if not found:
        advice = "In a container start it with `--gpus all`; else install NVIDIA's driver."
        missing = problem("no NVIDIA driver is found (libcuda.so.1)", advice)
        return missing if machine.on_gpu else None
    text = f"CUDA {dotted(found)} at most"
    if state := machine.gpu_state:
        text = f"{state['driver_version']}, {text}"
    built = parse_version(machine.torch.install.cuda) if machine.torch else None
    if built and built[0] > found[0]:
        too_new = f"{text}, but torch is built for CUDA {dotted(built)}"
        return make(too_new, Requirements(found, built).advice)
    return ok(text)


def gpus(machine: Machine) -> Observation:
    """List the GPUs."""
    if not (there := machine.driver.gpus):
        if not machine.on_gpu:
            return ok("none; runs use the CPU")
        advice = machine.hidden_gpus or "See the line about the driver."
        return problem("the driver shows none", advice)
    names = [f"{gpu.name} {gpu.model} ({format_bytes(gpu.memory_bytes)})" for gpu in there]
    if machine.on_gpu and not machine.has_gpu:
        advice = f"Choose another with --device. {machine.hidden_gpus}".strip()
        return problem(f"there is no {machine.device}; the driver shows {', '.join(names)}", advice)
    return ok(", ".join(names))


def monitoring(machine: Machine) -> Observation:
    """Read clocks, temperature and throttling as a benchmark does."""
    read = questions.ask("conditions", machine.device)
    if "unknown" in read:
        advice = "Run `pip install nvidia-ml-py`, or `pip install 'losscli[gpu]'`."
        if "not installed" not in read["unknown"]:
            advice = "Check whether `nvidia-smi` works here."
        return warning(f"a benchmark cannot read clocks and throttling: {read['unknown']}", advice)
    parts = []
    if "sm_clock_hz" in read:
        most = finite((machine.gpu_state or {}).get("clocks.max.sm", ""))
        of = f" of {most:.0f}" if most else ""
        parts.append(f"{read['sm_clock_hz'][-1] / 1e6:.0f}{of} MHz")
    units = (("celsius", "°C"), ("watts", "W"))
    parts += [f"{read[key][-1]:.0f} {unit}" for key, unit in units if key in read]
    if reasons := read.get("throttle_reasons"):
        advice = "Let it cool down, look at its power supply, or wait for other programs to end."
        return warning(f"{', '.join(parts)}; throttled: {', '.join(reasons)}", advice)
    return ok(", ".join([*parts, "not throttled"]))


def sharing(machine: Machine) -> Observation:
    """Check whether several processes may use the GPU, as benchmarks do."""
    mode = (machine.gpu_state or {}).get("compute_mode", "")
    advice = "As root: `nvidia-smi -c DEFAULT`."
    if mode == "Prohibited":
        return problem("the GPU is closed to computing", advice)
    if mode == "Exclusive_Process":
        return warning("one process at a time: bench and judge use several", advice)
    return ok("several processes may use it" if mode else _NO_SMI)


def others(machine: Machine) -> Observation:
    """Look for other programs on the GPU."""
    listed, state = machine.gpu_processes, machine.gpu_state
    if listed is None or state is None:
        return warning(f"unknown: {_NO_SMI}", "Check whether `nvidia-smi` works here.")
    if listed:
        names = [f"{row['process_name']} ({row['pid']})" for row in listed]
        advice = "Times cannot be trusted: wait, end these programs, or choose another GPU."
        return warning(f"in use by {', '.join(names)}", advice)
    used, busy = finite(state["memory.used"]) or 0.0, finite(state["utilization.gpu"]) or 0.0
    if used * 2**20 > HIDDEN_BYTES or busy:
        part = f"{format_bytes(used * 2**20)} and {busy:.0f} % of the GPU"
        advice = "They may run in other containers: look at `nvidia-smi` on the host."
        return warning(f"{part} are used by programs that are not shown here", advice)
    return ok("none")
