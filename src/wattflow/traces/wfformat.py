"""WfFormat, the JSON of WfCommons: versions 1.0 to 1.6.

Versions 1.0 to 1.4 are flat (``workflow.jobs`` or ``workflow.tasks``, files inside the tasks), 1.5 and later have
``workflow.specification`` and ``workflow.execution``. Up to 1.3 memory and I/O are in kB (1,000 bytes, as the
project's own migration does). The reader goes by the fields it meets, so a file between two versions is read too.
Coleman et al., "WfCommons: A framework for enabling scientific workflow research and development",
doi:10.1016/j.future.2021.09.043.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wattflow.model.errors import InvalidInput, Problem
from wattflow.model.workflow import Workflow
from wattflow.model.workload import Workload
from wattflow.traces import documents
from wattflow.traces.source import Probe, read_json, stem
from wattflow.traces.wfformat_parse import parse
from wattflow.traces.wfformat_write import write

__all__ = ["claims", "parse", "read", "validate", "write"]


def claims(probe: Probe) -> bool:
    """Recognise JSON with a workflow inside, or a folder of such files."""
    if probe.folder:
        return any(_members(probe.path))
    text = probe.text().lstrip()
    # A JSON schema of WfFormat speaks of workflows as well.
    return text.startswith("{") and '"workflow"' in text and '"$schema"' not in text[:500]


def read(path: Path) -> Workload:
    """Read one document, or every document of a folder in order of name."""
    if not path.is_dir():
        return documents.to_workload([read_document(path)], stem(path))
    found: list[Workflow] = []
    problems: list[Problem] = []
    for member in _members(path):
        try:
            found.append(read_document(member))
        except InvalidInput as error:
            # All problems of all files at once, each with its file.
            problems += [Problem(f"{member.name}: {one.where}", one.what) for one in error.problems]
    if problems:
        raise InvalidInput(str(path), problems)
    return documents.to_workload(found, path.name)


def read_document(path: Path) -> Workflow:
    """Read one document as a Workflow. Raises InvalidInput with all of its problems."""
    raw = read_json(path)
    workflow, problems = parse(raw, stem(path))
    if workflow is None:
        raise InvalidInput(str(path), problems)
    return workflow


def validate(raw: object) -> tuple[Problem, ...]:
    """Return all problems of a parsed JSON document; empty when it can be read."""
    return parse(raw)[1]


def _members(folder: Path) -> Iterator[Path]:
    for member in sorted(folder.iterdir()):
        # Hidden files are copies of editors and of macOS archives.
        if member.name.endswith((".json", ".json.gz")) and member.is_file() and not member.name.startswith("."):
            yield member
