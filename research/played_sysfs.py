"""A played tree of the kernel's files with knobs: powercap, cpufreq, amdgpu. Plain files, so nothing gets slower."""

from __future__ import annotations

from pathlib import Path

FULL_KHZ, FULL_UW, FULL_GPU_UW = 3_600_000, 150_000_000, 300_000_000


def play_sysfs(root: Path, packages: int = 1, policies: int = 2) -> Path:
    """Make the tree; returns its root, for WATTFLOW_SYSFS."""
    for n in range(packages):
        zone = root / "class" / "powercap" / f"intel-rapl:{n}"
        # The range is a real Xeon's.
        _write(zone, name=f"package-{n}", energy_uj=0, max_energy_range_uj=262_143_328_850,
               constraint_0_name="long_term", constraint_0_power_limit_uw=FULL_UW, constraint_0_max_power_uw=FULL_UW,
               constraint_1_name="short_term", constraint_1_power_limit_uw=2 * FULL_UW)  # fmt: skip
    for n in range(policies):
        policy = root / "devices" / "system" / "cpu" / "cpufreq" / f"policy{n}"
        _write(policy, cpuinfo_min_freq=800_000, cpuinfo_max_freq=FULL_KHZ, scaling_max_freq=FULL_KHZ)
    card = root / "class" / "hwmon" / "hwmon3"
    _write(
        card,
        name="amdgpu",
        power1_cap=FULL_GPU_UW,
        power1_cap_min=0,
        power1_cap_max=FULL_GPU_UW,
        power1_cap_default=FULL_GPU_UW,
    )
    return root


def ceiling_khz(root: Path, policy: int = 0) -> int:
    """Read the ceiling of a frequency domain. A plain file is empty for a moment while somebody writes it."""
    path = root / f"devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq"
    # Bounded, so that a test that broke the file fails and does not hang.
    return next(int(text) for _ in range(10_000) if (text := path.read_text().strip()))


def _write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")
