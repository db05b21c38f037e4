"""Nodes that are deleted from their groups and come anew: a played provider, real gRPC with TLS on both sides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from played_provider import CREATING, RUNNING, Played, certificates, stopped
from wattflow.kube import given_back, node_groups, node_switches, objects
from wattflow.kube.access import Access
from wattflow.kube.client import ApiError, Client
from wattflow.kube.node_groups import NodeGroups
from wattflow.kube.settings import parse
from wattflow.kube.sleeping import Sleeper
from wattflow.levels.power_hooks import HookFailed
from wattflow.live.protocol import Power
from wattflow.model.errors import InvalidInput

from .making import node
from .test_sleeping import until


class Objects(Client):
    """Nodes and ConfigMaps in memory; nodes come and go with the provider's machines."""

    def __init__(self) -> None:
        super().__init__(Access("http://127.0.0.1:1"))
        self.objects: dict[str, Any] = {}
        self.seen: Callable[[str, objects.Node], object] = lambda kind, one: None

    def made(self, id: str) -> None:
        """A kubelet has registered."""
        one = node(f"n-{id.rpartition('/')[2]}", {"a": "b"}, providerID=id)
        ready = [objects.Condition(type="Ready", status="True")]
        one = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, conditions=ready))
        body = msgspec.to_builtins(one)
        body["metadata"]["resourceVersion"] = "1"
        self.objects[f"/api/v1/nodes/{one.metadata.name}"] = body
        self.seen("ADDED", one)

    def deleted(self, id: str) -> None:
        """A cloud's controller has deleted the node of a machine that is gone."""
        self.objects.pop(f"/api/v1/nodes/n-{id.rpartition('/')[2]}", None)

    def kept(self) -> list[dict[str, str]]:
        """What is kept of nodes that sleep."""
        return [one["data"] for path, one in self.objects.items() if "/configmaps/" in path]

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> bytes:
        if method == "POST":
            self.objects[f"{path}/{body['metadata']['name']}"] = json.loads(json.dumps(body))
        elif method == "GET" and path.endswith("/configmaps"):
            items = [one for key, one in self.objects.items() if key.startswith(path)]
            return json.dumps({"items": items}).encode()
        elif path not in self.objects:
            raise ApiError(404, "NotFound", path)
        elif method == "DELETE":
            del self.objects[path]
        elif method == "GET":
            return json.dumps(self.objects[path]).encode()
        elif "/configmaps/" in path:
            data = self.objects[path]["data"] | body["data"]
            self.objects[path]["data"] = {key: value for key, value in data.items() if value is not None}
        return b"{}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates."""
    made = tmp_path_factory.mktemp("certificates")
    certificates(made)
    return made


Scene = Callable[[Objects, Played, NodeGroups], Awaitable[None]]


def play(folder: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
    """Play a scene with one machine m1 in the group."""
    monkeypatch.setattr(given_back, "POLL_S", 0.01)

    async def run() -> None:
        api = Objects()
        provider = Played(api.made, api.deleted, **bounds)
        server, file = await provider.serve(folder)
        try:
            provider.add()
            await scene(api, provider, hook_of(api, file))
        finally:
            await stopped(server)

    asyncio.run(run())


def hook_of(api: Objects, file: Path) -> NodeGroups:
    text = f'[sleep]\nnode_groups = "{file}"\n[lease]\nlease_namespace = "wattflow"'
    hook = node_switches.make(parse(text), api)
    assert isinstance(hook, NodeGroups)
    return hook


def test_a_node_leaves_its_group_and_another_comes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, Power]] = []
    gone: list[str] = []

    async def scene(api: Objects, provider: Played, hook: NodeGroups) -> None:
        sleeper = Sleeper(api, "wattflow", hook, lambda name: False, lambda name, state: told.append((name, state)),
                          gone.append, settle_s=0.0)  # fmt: skip
        api.seen = sleeper.seen
        api.seen("ADDED", msgspec.convert(api.objects["/api/v1/nodes/n-m1"], objects.Node))
        sleeper.sleep("n-m1")
        await until(lambda: told == [("n-m1", Power.ASLEEP)])
        assert provider.size == 0 and not provider.instances
        (kept,) = api.kept()
        assert kept["group"] == "g" and json.loads(kept["node"])["metadata"]["labels"]["a"] == "b"
        again = Sleeper(api, "wattflow", hook, lambda name: False, lambda name, state: None)
        assert [one.metadata.name for one in await again.begin()] == ["n-m1"], "a restart finds it"
        provider.state = CREATING
        sleeper.wake("n-m1")
        await until(lambda: hook.coming == {"n-m1": "played://m2"})
        sleeper.sleep("n-m2")
        assert told[1:] == [("n-m2", Power.ON)], "it came for pods that have not been told of it"
        provider.instances["played://m2"] = RUNNING, ""
        await until(lambda: gone == ["n-m1"])
        assert provider.size == 1 and not api.kept()
        await until(lambda: not hook.coming)
        sleeper.sleep("n-m2")
        await until(lambda: told[2:] == [("n-m2", Power.ASLEEP)])

    play(folder, scene, monkeypatch)


def test_bounds_of_a_group_hold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(api: Objects, provider: Played, hook: NodeGroups) -> None:
        with pytest.raises(HookFailed, match="g has its minimum of 1"):
            await hook.suspend("n-m1")
        provider.add()
        both = await asyncio.gather(hook.suspend("n-m1"), hook.suspend("n-m2"), return_exceptions=True)
        assert [str(one)[-18:] for one in both if one is not None] == ["minimum of 1 nodes"], "not even two at once"
        assert both[0] is None
        provider.most = 1
        with pytest.raises(HookFailed, match="g has its maximum of 1"):
            await hook.resume("n-m1")
        provider.most = 2
        await hook.resume("n-m1")
        assert provider.calls.count("NodeGroupIncreaseSize") == 1

    play(folder, scene, monkeypatch, least=1)


def test_an_order_before_a_restart_is_not_given_twice_and_a_lost_one_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(api: Objects, provider: Played, hook: NodeGroups) -> None:
        await hook.suspend("n-m1")
        provider.state = CREATING
        first = asyncio.create_task(hook.resume("n-m1"))
        await until(lambda: provider.size == 1)
        first.cancel()
        provider.instances = {id: (RUNNING, "") for id in provider.instances}
        other = hook_of(api, folder / "cloud-config.yaml")
        await other.resume("n-m1")
        assert provider.size == 1 and other.coming == {"n-m1": "played://m2"}
        await other.forget("n-m1")
        await other.suspend("n-m2")
        provider.state, provider.lost = RUNNING, True
        second = asyncio.create_task(other.resume("n-m2"))
        await until(lambda: provider.calls.count("NodeGroupIncreaseSize") == 2)
        second.cancel()
        provider.lost = False
        await hook_of(api, folder / "cloud-config.yaml").resume("n-m2")
        assert provider.size == 1

    play(folder, scene, monkeypatch)


def test_two_that_wake_get_two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(api: Objects, provider: Played, hook: NodeGroups) -> None:
        provider.add()
        await asyncio.gather(hook.suspend("n-m1"), hook.suspend("n-m2"))
        await asyncio.gather(hook.resume("n-m1"), hook.resume("n-m2"))
        assert set(hook.coming.values()) == {"played://m3", "played://m4"} and provider.size == 2

    play(folder, scene, monkeypatch)


def test_a_machine_that_cannot_be_made_is_let_go_and_the_next_try_asks_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(api: Objects, provider: Played, hook: NodeGroups) -> None:
        await hook.suspend("n-m1")
        provider.error = "QUOTA"
        with pytest.raises(HookFailed, match="QUOTA: no machines left"):
            await hook.resume("n-m1")
        assert provider.size == 0 and not hook.coming
        provider.error = ""
        await hook.resume("n-m1")
        assert list(provider.instances) == ["played://m3"]
        del provider.instances["played://m3"]
        with pytest.raises(HookFailed, match="gone again"):
            await hook.resume("n-m1")

    play(folder, scene, monkeypatch)


def test_what_the_provider_refuses_leaves_the_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(api: Objects, provider: Played, hook: NodeGroups) -> None:
        api.made("elsewhere://x")
        with pytest.raises(HookFailed, match="no node group"):
            await hook.suspend("n-x")
        provider._NodeGroupForNode = lambda asked: provider._NodeGroups(asked)  # type: ignore[method-assign]
        with pytest.raises(HookFailed, match="NOT_FOUND: no machine elsewhere://x"):
            await hook.suspend("n-x")
        assert not api.kept() and "/api/v1/nodes/n-x" in api.objects
        with pytest.raises(HookFailed, match="nothing is kept of n-x"):
            await hook.resume("n-x")

    play(folder, scene, monkeypatch)


def test_only_who_shows_the_right_certificate_is_heard(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates(tmp_path)

    async def scene(api: Objects, provider: Played, hook: NodeGroups) -> None:
        mine = (folder / "cloud-config.yaml").read_text()
        for line in (f"cacert: {folder}", f"cert: {folder}"):
            file = tmp_path / "cloud-config.yaml"
            other = mine.replace(line, line.replace(str(folder), str(tmp_path)))
            file.write_text(other.replace(f"key: {folder}", f"key: {tmp_path}") if "cacert" not in line else other)
            with pytest.raises(HookFailed):
                await hook_of(api, file).suspend("n-m1")
        assert not provider.calls

    play(folder, scene, monkeypatch)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("address: 10.0.0.1:8086", "must be known"),
        ("address: cloud", "HOST:PORT"),
        ("address: cloud:²", "HOST:PORT"),
        ("- a", "as texts"),
        ("address: localhost:1\ntoken: x", "unknown: token"),
        ("address: localhost:1\ncacert: /nowhere\ncert: /nowhere\nkey: /nowhere", "cacert, cert or key"),
        ("address: localhost:1\ncacert: /nowhere", "must be known"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_file_that_will_not_do_is_told(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "cloud-config.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        node_groups.provider_of(file)


def test_messages_are_those_of_protocol_buffers() -> None:
    """Against the library's own reading of the same fields."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    pool, factory = pytest.importorskip("google.protobuf.descriptor_pool"), "google.protobuf.message_factory"
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    one = file.message_type.add(name="One")
    one.field.add(name="text", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    one.field.add(name="whole", number=20, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    one.field.add(name="real", number=3, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    one.field.add(name="more", number=4, type=field.TYPE_MESSAGE, type_name=".a.One", label=field.LABEL_REPEATED)
    made = pytest.importorskip(factory).GetMessages([file], pool=pool.DescriptorPool())["a.One"]
    theirs = made(text="ü" * 200, whole=-3, real=1.5, more=[made(whole=70000), made()])
    fields = node_groups.read(theirs.SerializeToString())
    assert node_groups.one_text(fields, 1) == theirs.text and node_groups.one_whole(fields, 20) == -3
    assert [node_groups.one_whole(inner, 20) for inner in node_groups.messages(fields, 4)] == [70000, 0]
    inner = node_groups.nested(4, node_groups.whole(20, 300))
    ours = made.FromString(node_groups.text(1, "a" * 300) + node_groups.whole(20, 5) + inner)
    assert ours == made(text="a" * 300, whole=5, more=[made(whole=300)])


@pytest.mark.parametrize("message", [b"\x0a\x05ab", b"\xff", b"\x0b\x00", b"\x80" * 11])
def test_what_is_no_message_is_told(message: bytes) -> None:
    with pytest.raises(HookFailed, match="answer is none"):
        node_groups.read(message)
