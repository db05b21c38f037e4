"""The rig from the command line: `python -m kuberig build|up|down|status`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from kuberig import accounts, control, node
from kuberig.api import ApiError
from kuberig.build import BuildFailed, build
from kuberig.parts import BY_NAME, NotBuilt
from kuberig.processes import NotReady
from kuberig.rig import Rig

LINK = Path(".wattflow") / "kube-rig"


def main() -> int:
    """Runs one command; 2 means bad input or something missing."""
    arguments = _parser().parse_args()
    try:
        return int(arguments.run(arguments))
    except (BuildFailed, NotBuilt, NotReady, node.NoRealNode, ApiError, TimeoutError) as error:
        print(f"kube-rig: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kuberig", description="A real Kubernetes with Argo on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    make = commands.add_parser("build", help="build what the cache lacks")
    make.add_argument("parts", nargs="*", metavar="PART", help=f"only these of {', '.join(BY_NAME)}")
    make.set_defaults(run=_build)
    up = commands.add_parser("up", help="start a cluster")
    up.add_argument("--name", default="default", help="to have several at once")
    up.add_argument("--kwok", type=int, default=0, metavar="N", help="simulated nodes")
    up.add_argument("--real", type=int, default=0, choices=range(len(accounts.REAL_NODES) + 1), help="real nodes")
    up.add_argument("--argo", action="store_true", help="with Argo's workflow-controller")
    up.add_argument("--no-scheduler", action="store_true", help="without kube-scheduler")
    up.add_argument("--scheduler-qps", type=float, metavar="N", help="kube-scheduler's client limit (50 as shipped)")
    up.set_defaults(run=_up)
    for name, run, text in (("down", _down, "stop a cluster"), ("status", _status, "what runs")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--name", default="default")
        command.set_defaults(run=run)
    return parser


def _build(arguments: argparse.Namespace) -> int:
    unknown = [name for name in arguments.parts if name not in BY_NAME]
    if unknown:
        raise BuildFailed(f"no part named {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    build(tuple(arguments.parts))
    return 0


def _up(arguments: argparse.Namespace) -> int:
    link = LINK / arguments.name
    if link.is_symlink():
        if link.exists():
            print(f"kube-rig: {arguments.name} is up already ({link}); `make kube-down` stops it", file=sys.stderr)
            return 2
        link.unlink()
    rig = Rig.start(control.Options(not arguments.no_scheduler, arguments.scheduler_qps))
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(rig.folder)
    print(f"control plane ready in {rig.start_s:.1f} s ({rig.api.server})")
    try:
        _fill(rig, arguments)
    except BaseException:
        link.unlink()
        rig.stop()
        raise
    print(f"export KUBECONFIG={(link / 'kubeconfig').absolute()}")
    print(f"a scheduler's account, with no more rights than it needs: {(link / 'scheduler.kubeconfig').absolute()}")
    print(f"logs: {(link / 'logs').absolute()}; `make kube-down` stops it")
    return 0


def _fill(rig: Rig, arguments: argparse.Namespace) -> None:
    began = time.monotonic()
    if arguments.kwok:
        rig.add_kwok_nodes(arguments.kwok)
        print(f"{arguments.kwok} KWOK nodes ready after {time.monotonic() - began:.1f} s")
    for name in accounts.REAL_NODES[: arguments.real]:
        began = time.monotonic()
        rig.start_real_node(name, with_argo=arguments.argo)
        print(f"real node {name} ready after {time.monotonic() - began:.1f} s")
    if arguments.argo:
        began = time.monotonic()
        rig.start_argo()
        print(f"Argo ready after {time.monotonic() - began:.1f} s")


def _down(arguments: argparse.Namespace) -> int:
    link = LINK / arguments.name
    if not link.is_symlink():
        print(f"kube-rig: {arguments.name} is not up (no {link})", file=sys.stderr)
        return 2
    if link.exists():
        Rig.attach(link.readlink()).stop()
    link.unlink()
    return 0


def _status(arguments: argparse.Namespace) -> int:
    link = LINK / arguments.name
    if not link.exists():
        print(f"kube-rig: {arguments.name} is not up")
        return 1
    rig = Rig.attach(link.readlink())
    for process in rig.processes.running:
        print(f"{process.name:26} pid {process.pid:<8} {'runs' if process.alive else 'has ended'}")
    print(f"KUBECONFIG={(link / 'kubeconfig').absolute()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
