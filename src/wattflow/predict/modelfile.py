"""Models as files: one zip of plain arrays and a JSON manifest, hashed; never pickle.

The manifest holds the format's version, the kind of model, the files it was trained on with their hashes and licences,
and its held-out metrics. The same model gives the same bytes.
"""

from __future__ import annotations

import enum
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.files import whole
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Scope
from wattflow.predict import (
    backbone,
    conformal,
    core,
    kriging,
    needs,
    plain,
    runtime,
    tasks,
    trees,
    watts,
)

# Any change of the parts' fields: old files are refused and fitted again, which takes seconds.
VERSION = 3
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        # Only these can be made from a file: no code is ever loaded.
        backbone.Backbone, conformal.Calibration, kriging.Kriging, kriging.Coordinates,
        needs.NeedModel, core.Core, core.Names, plain.Keyed, plain.Plain, runtime.RuntimeModel,
        tasks.TaskModel,
        trees.Trees, watts.Corrected, watts.Familiar, watts.Line, watts.WattsModel,
    )
}  # fmt: skip
# The earliest date that zip knows; a real one would change the bytes of the same model.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """A model file's words about itself.

    Attributes:
        data: One entry per training file: path below the data folder, sha256, rows, licence.
        metrics: Held-out figures by name.
    """

    kind: str
    data: tuple[Mapping[str, object], ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def save(path: Path, model: object, manifest: ModelManifest) -> str:
    """Write the model, whole or not at all; returns its sha256."""
    arrays: dict[str, NDArray[np.generic]] = {}
    document = {
        "format": "wattflow-model",
        "version": VERSION,
        "kind": manifest.kind,
        "note": manifest.note,
        "data": [dict(entry) for entry in manifest.data],
        "metrics": dict(manifest.metrics),
        "model": _encode(model, arrays, "m"),
    }
    document["sha256"] = _digest(document, arrays)
    with whole.whole_file(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, "manifest.json", json.dumps(document, sort_keys=True, indent=1).encode())
        # Sorted: the same model gives the same bytes.
        for name in sorted(arrays):
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            _write(archive, f"{name}.npy", buffer.getvalue())
    return str(document["sha256"])


def find(name: str | Path) -> Path:
    """Find the file of a model.

    Raises:
        InvalidInput: There is none.
    """
    if not Path(name).is_file():
        raise InvalidInput(str(name), "no such model file; `wattflow model fit` writes one")
    return Path(name)


def load(path: Path) -> tuple[Any, ModelManifest]:
    """Read a model and its manifest. A file that was changed, or that another version wrote, is refused."""
    if not path.exists():
        raise InvalidInput(str(path), "no such model file; `wattflow model fit` writes one")
    try:
        with zipfile.ZipFile(path) as archive:
            document = json.loads(archive.read("manifest.json"))
            arrays = {
                # Never pickle: an array of objects would run code when it is read.
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise InvalidInput(str(path), f"not a model file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != "wattflow-model":
        raise InvalidInput(str(path), "not a model file: its manifest does not say wattflow-model")
    if document.get("version") != VERSION:
        raise InvalidInput(
            str(path), f"model format {document.get('version')}, this wattflow reads {VERSION}; fit again"
        )
    # The hash is not part of what it is made of.
    claimed = document.pop("sha256", None)
    if claimed != _digest(document, arrays):
        raise InvalidInput(str(path), "its contents do not match its hash: the file was changed; fit it again")
    manifest = ModelManifest(document["kind"], tuple(document["data"]), document["metrics"], document["note"])
    return _decode(document["model"], arrays, str(path)), manifest


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _digest(document: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]]) -> str:
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        # Type and shape too: the same bytes may be another array.
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode() + array.tobytes())
    return digest.hexdigest()


def _encode(value: Any, arrays: dict[str, NDArray[np.generic]], name: str) -> Any:
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, enum.Enum):
        return {"scope": value.value}
    if is_dataclass(value):
        parts = {f.name: _encode(getattr(value, f.name), arrays, f"{name}.{f.name}") for f in fields(value)}
        return {"type": type(value).__name__, "fields": parts}
    if isinstance(value, tuple):
        return {"tuple": [_encode(part, arrays, f"{name}.{i}") for i, part in enumerate(value)]}
    if isinstance(value, Mapping):
        # As pairs: keys of JSON objects are texts only, and order matters.
        return {"map": [[key, _encode(part, arrays, f"{name}.{i}")] for i, (key, part) in enumerate(value.items())]}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"{name}: a {type(value).__name__} cannot be part of a model file")


def _decode(value: Any, arrays: Mapping[str, NDArray[np.generic]], path: str) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "scope" in value:
        return Scope(value["scope"])
    if "tuple" in value:
        return tuple(_decode(part, arrays, path) for part in value["tuple"])
    if "map" in value:
        return {key: _decode(part, arrays, path) for key, part in value["map"]}
    kind = _TYPES.get(value.get("type", ""))
    if kind is None:
        raise InvalidInput(path, f"unknown part {value.get('type')!r} in the model file")
    return kind(**{name: _decode(part, arrays, path) for name, part in value["fields"].items()})
