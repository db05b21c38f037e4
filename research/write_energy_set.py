"""Builds the energy-labelled set of WfInstances (`make energy-set`) and checks every file against the schema.

python -m research.write_energy_set [OUT]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from research import energy_set
from wattflow.files.data_folder import data_file


def main() -> int:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/energy-set")
    source = data_file("wfinstances")
    rows = energy_set.build(source, out)
    bad = check(source / "wfcommons-schema-1.5.json", sorted((out / "wfinstances").rglob("*.json")))
    print((out / "README.md").read_text())
    for line in bad:
        print(line)
    verdict = "ok" if not bad else "short"
    print(f"figure energy-set-files-valid {100 * (1 - len(bad) / len(rows)):.1f} % goal 100 {verdict}")
    return 1 if bad else 0


def check(schema: Path, files: list[Path]) -> list[str]:
    """One line for each file that is not valid against WfFormat's own schema."""
    from jsonschema.validators import Draft7Validator

    validator = Draft7Validator(json.loads(schema.read_text()))
    bad = []
    for file in files:
        error = next(validator.iter_errors(json.loads(file.read_text())), None)
        if error is not None:
            bad.append(f"{file}: {error.json_path}: {error.message[:200]}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
