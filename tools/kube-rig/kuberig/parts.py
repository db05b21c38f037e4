"""What the rig is made of: programs, versions, and how each is built."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

PINNED = {"kubernetes": "1.36.4", "argo": "4.0.2"}
"""What go.mod and go.sum of this folder pin; another version is resolved when it is built (`build._resolved`)."""
KUBERNETES = os.environ.get("KUBE_VERSION") or PINNED["kubernetes"]
ETCD = "3.6.8"
KWOK = "0.8.0"
ARGO = os.environ.get("ARGO_VERSION") or PINNED["argo"]
CONTAINERD = "2.4.2"
HELM = "3.19.0"
VERSITYGW = "1.8.0"
KARPENTER = "1.14.1"
KUEUE = "0.16.1"
VOLCANO = "1.14.1"

HERE = Path(__file__).resolve().parents[1]
ARGO_MODULE = f"github.com/argoproj/argo-workflows/v{ARGO.split('.')[0]}"
KARPENTER_MODULE = "sigs.k8s.io/karpenter"
KUEUE_MODULE = "sigs.k8s.io/kueue"
VOLCANO_MODULE = "volcano.sh/volcano"
_STAMP = "k8s.io/component-base/version"
# Without the stamp clients read the version as 0.0 and switch features off.
_MINOR = KUBERNETES.split(".")[1]
_KUBE_FLAGS = f"-X {_STAMP}.gitVersion=v{KUBERNETES} -X {_STAMP}.gitMajor=1 -X {_STAMP}.gitMinor={_MINOR}"
_OTHER_KUBERNETES = PINNED["kubernetes"] != KUBERNETES


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to build: packages of one Go module, and the programs that come out."""

    name: str
    version: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    module: str = ""  # folder of our go.mod; empty: `go install package@version`
    flags: str = ""
    tags: str = ""
    vendored: bool = False
    definitions: tuple[str, ...] = ()  # a module, and patterns of its resource definitions to copy beside
    on_demand: bool = False  # built only when it is named: few need it
    root: str = ""  # the module whose version may be another than the pinned one
    sources: tuple[str, ...] = field(default=())  # files of ours that the programs are made from

    @property
    def key(self) -> str:
        """The folder's name in the cache: version, and a hash of our own sources where there are any."""
        if not self.sources:
            return f"{self.name}-{self.version}"
        digest = hashlib.sha256()
        for pattern in self.sources:
            for file in sorted(HERE.glob(pattern)):
                digest.update(file.read_bytes())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"


def _kube(program: str) -> Part:
    packages = (f"k8s.io/kubernetes/cmd/{program}",)
    return Part(program, KUBERNETES, (program,), packages, ".", _KUBE_FLAGS, root="k8s.io/kubernetes")


PARTS = (
    Part("etcd", ETCD, ("etcd",), ("go.etcd.io/etcd/server/v3",), "etcd"),
    _kube("kube-apiserver"),
    _kube("kube-controller-manager"),
    _kube("kube-scheduler"),
    Part("kwok", KWOK, ("kwok",), ("sigs.k8s.io/kwok/cmd/kwok",)),
    _kube("kubelet"),
    Part(
        "containerd",
        CONTAINERD,
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        tuple(f"github.com/containerd/containerd/v2/cmd/{p}" for p in ("containerd", "containerd-shim-runc-v2", "ctr")),
        tags="no_btrfs no_devmapper no_zfs",
    ),
    # Programs of ours are written against the pinned version: of others they are built for nobody.
    Part(
        "parity",
        PINNED["kubernetes"],
        ("parity",),
        ("./parity",),
        ".",
        sources=("go.mod", "parity/*.go"),
        on_demand=_OTHER_KUBERNETES,
    ),
    Part("load", "1", ("load",), ("./load",), ".", sources=("load/*.go",)),
    # Stamped like the programs it tests: specs ask the client's version which features to expect.
    Part(
        "conformance",
        PINNED["kubernetes"],
        ("conformance",),
        ("./conformance",),
        ".",
        _KUBE_FLAGS,
        sources=("go.mod", "conformance/*.go"),
        on_demand=_OTHER_KUBERNETES,
    ),
    Part("helm", HELM, ("helm",), ("helm.sh/helm/v3/cmd/helm",)),
    Part("versitygw", VERSITYGW, ("versitygw",), ("github.com/versity/versitygw/cmd/versitygw",)),
    # Both from one vendored copy, so that what they share is compiled once.
    Part(
        "argo",
        ARGO,
        ("workflow-controller", "argoexec"),
        (f"{ARGO_MODULE}/cmd/workflow-controller", f"{ARGO_MODULE}/cmd/argoexec"),
        "argo",
        vendored=True,
        definitions=(ARGO_MODULE, "manifests/base/crds/minimal/argoproj.io_*.yaml"),
        root=ARGO_MODULE,
    ),
    Part(
        "karpenter",
        KARPENTER,
        ("karpenter",),
        (f"{KARPENTER_MODULE}/kwok",),
        "karpenter",
        definitions=(KARPENTER_MODULE, "pkg/apis/crds/*.yaml", "kwok/apis/crds/*.yaml"),
        on_demand=True,
    ),
    Part(
        "kueue",
        KUEUE,
        ("kueue",),
        (f"{KUEUE_MODULE}/cmd/kueue",),
        "kueue",
        definitions=(KUEUE_MODULE, "config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
        on_demand=True,
    ),
    Part(
        "volcano",
        VOLCANO,
        ("controller-manager", "scheduler"),
        (f"{VOLCANO_MODULE}/cmd/controller-manager", f"{VOLCANO_MODULE}/cmd/scheduler"),
        "volcano",
        definitions=(VOLCANO_MODULE, "config/crd/volcano/bases/*.yaml"),
        on_demand=True,
    ),
)
BY_NAME = {part.name: part for part in PARTS}
BY_PROGRAM = {program: part for part in PARTS for program in part.programs}


def cache_dir() -> Path:
    """Where binaries are kept: WATTFLOW_KUBE_RIG, or the user's cache folder."""
    named = os.environ.get("WATTFLOW_KUBE_RIG")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "wattflow" / "kube-rig"


def part_dir(part: Part) -> Path:
    """The folder that holds one part's programs."""
    return cache_dir() / part.key


def program(name: str) -> Path:
    """The path of a built program; raises with what to do when it is not built."""
    path = part_dir(BY_PROGRAM[name]) / name
    if not path.exists():
        raise NotBuilt(f"{name} is not built (looked for {path}); `make kube-rig` builds it")
    return path


def missing(names: tuple[str, ...] = ()) -> list[Part]:
    """Parts, of those named or of all, that have a program missing."""
    wanted = [BY_NAME[name] for name in names] if names else [part for part in PARTS if not part.on_demand]
    return [part for part in wanted if not all((part_dir(part) / p).exists() for p in part.programs)]


class NotBuilt(RuntimeError):
    """A program of the rig is not in the cache."""
