"""Generated cases for parity with kube-scheduler's filters: one pod, one small cluster, few values, many clashes."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]
ZONES, APPS, DISKS = ("z1", "z2", "z3"), ("web", "db", "cache"), ("ssd", "hdd")
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}, "third": {"team": "a", "env": "prod"}}
KEYS = ("zone", "kubernetes.io/hostname", "rack")


class Cases:
    """A stream of cases from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def maybe(self, chance: float) -> bool:
        return self.dice.random() < chance

    def pick(self, *options: Any) -> Any:
        return self.dice.choice(options)

    def case(self, number: int) -> Json:
        nodes = [self.node(i) for i in range(self.dice.randint(1, 8))]
        names = [node["metadata"]["name"] for node in nodes]
        pods = [self.pod(f"old-{i}", self.dice.choice(names), running=True) for i in range(self.dice.randint(0, 14))]
        pod = self.pod("new", self.pick(*names, "elsewhere") if self.maybe(0.03) else "")
        objects = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            for name, labels in NAMESPACES.items()
        ]
        return {"id": number, "pod": pod, "nodes": nodes, "pods": pods, "objects": objects}

    # nodes

    def node(self, number: int) -> Json:
        name = f"n{number}"
        labels = {}
        if self.maybe(0.95):
            labels["kubernetes.io/hostname"] = name
        for key, values, chance in (("zone", ZONES, 0.85), ("disk", DISKS, 0.6), ("rack", ("r1", "r2"), 0.5)):
            if self.maybe(chance):
                labels[key] = self.dice.choice(values)
        if self.maybe(0.4):
            labels["gen"] = self.pick("1", "5", "12", "x", "-3")
        spec: Json = {}
        if self.maybe(0.1):
            spec["unschedulable"] = True
        if self.maybe(0.3):
            spec["taints"] = [self.taint() for _ in range(self.dice.randint(1, 2))]
        amounts = {"cpu": self.pick("2", "4", "3500m"), "memory": self.pick("4Gi", "8Gi", "1000000k"),
                   "pods": self.pick("110", "3", "6")}  # fmt: skip
        if self.maybe(0.4):
            amounts["ephemeral-storage"] = self.pick("1Gi", "10Gi")
        if self.maybe(0.3):
            amounts["example.com/gpu"] = self.pick("1", "4")
        if self.maybe(0.15):
            amounts["hugepages-2Mi"] = self.pick("64Mi", "0")
        return {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec,
            "status": {"capacity": amounts, "allocatable": amounts},
        }  # fmt: skip

    def taint(self) -> Json:
        return {"key": self.pick("k1", "k2"), "value": self.pick("", "v1", "v2"),
                "effect": self.pick("NoSchedule", "NoExecute", "PreferNoSchedule")}  # fmt: skip

    # pods

    def pod(self, name: str, node: str, running: bool = False) -> Json:
        labels = {"app": self.dice.choice(APPS)} if self.maybe(0.8) else {}
        if self.maybe(0.4):
            labels["rev"] = self.pick("1", "2")
        spec: Json = {"containers": [self.container(f"c{i}") for i in range(self.dice.randint(1, 2))]}
        if node:
            spec["nodeName"] = node
        if self.maybe(0.2):
            spec["initContainers"] = [self.container(f"i{i}", init=True) for i in range(self.dice.randint(1, 3))]
        if self.maybe(0.1):
            spec["overhead"] = {"cpu": "100m", "memory": "100Mi"}
        if self.maybe(0.08):
            spec["resources"] = {"requests": self.amounts(0.9)}
        if self.maybe(0.35 if not running else 0.1):
            spec["tolerations"] = [self.toleration() for _ in range(self.dice.randint(1, 2))]
        if self.maybe(0.2):
            spec["nodeSelector"] = {self.pick("disk", "zone"): self.pick("ssd", "z1", "hdd")}
        affinity = self.affinity()
        if affinity:
            spec["affinity"] = affinity
        if self.maybe(0.25 if not running else 0.05):
            spec["topologySpreadConstraints"] = [self.spread() for _ in range(self.dice.randint(1, 2))]
        metadata: Json = {"name": name, "uid": name, "labels": labels,
                          "namespace": self.pick("default", "default", "default", "other", "third")}  # fmt: skip
        status = self.status(spec) if running else {}
        if running and self.maybe(0.05):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def status(self, spec: Json) -> Json:
        status: Json = {"phase": self.pick("Running", "Running", "Running", "Succeeded", "Pending")}
        if self.maybe(0.15):
            status["containerStatuses"] = [
                {"name": one["name"], "resources": {"requests": self.amounts(0.5)},
                 "allocatedResources": self.amounts(0.5)}
                for one in spec["containers"]
            ]  # fmt: skip
            if self.maybe(0.4):
                reason = self.pick("Infeasible", "Deferred")
                status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        return status

    def amounts(self, chance: float = 0.7) -> dict[str, str]:
        found = {}
        if self.maybe(chance):
            found["cpu"] = self.pick("100m", "500m", "1", "1500m", "0", "0.3")
        if self.maybe(chance * 0.8):
            found["memory"] = self.pick("128Mi", "1Gi", "500M", "0", "1500000001m")
        return found

    def container(self, name: str, init: bool = False) -> Json:
        requests = self.amounts()
        if self.maybe(0.12):
            requests["ephemeral-storage"] = self.pick("100Mi", "2Gi")
        found: Json = {"name": name, "image": "x", "resources": {"requests": requests}}
        if self.maybe(0.1):
            requests["example.com/gpu"] = self.pick("1", "2")
        if self.maybe(0.04):
            requests["hugepages-2Mi"] = "32Mi"
        if init and self.maybe(0.5):
            found["restartPolicy"] = "Always"
        if self.maybe(0.2):
            port: Json = {"containerPort": 80, "hostPort": self.pick(80, 81, 0)}
            if self.maybe(0.4):
                port["hostIP"] = self.pick("10.0.0.1", "10.0.0.2", "0.0.0.0")
            if self.maybe(0.3):
                port["protocol"] = self.pick("UDP", "TCP")
            found["ports"] = [port]
        return found

    def toleration(self) -> Json:
        found: Json = {"operator": self.pick("Exists", "Equal", "Equal")}
        if found["operator"] == "Equal" or self.maybe(0.8):
            found["key"] = self.pick("k1", "k2", "node.kubernetes.io/unschedulable")
        if found["operator"] == "Equal":
            found["value"] = self.pick("", "v1", "v2")
        if self.maybe(0.5):
            found["effect"] = self.pick("NoSchedule", "NoExecute")
        return found

    # selectors

    def expression(self) -> Json:
        operator = self.pick("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
        if operator in ("Gt", "Lt"):
            return {"key": "gen", "operator": operator, "values": [self.pick("1", "4", "10")]}
        found: Json = {"key": self.pick("zone", "disk", "gen", "rack"), "operator": operator}
        if operator in ("In", "NotIn"):
            found["values"] = self.dice.sample([*ZONES, *DISKS, "r1", "1"], self.dice.randint(1, 4))
        return found

    def node_term(self) -> Json:
        found: Json = {}
        if self.maybe(0.85):
            found["matchExpressions"] = [self.expression() for _ in range(self.dice.randint(1, 2))]
        if self.maybe(0.2):
            operator, value = self.pick("In", "NotIn"), f"n{self.dice.randint(0, 4)}"
            found["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [value]}]
        return found

    def selector(self) -> Json:
        found: Json = {}
        if self.maybe(0.6):
            found["matchLabels"] = {"app": self.dice.choice(APPS)}
        if self.maybe(0.4):
            key, operator = self.pick("app", "rev"), self.pick("In", "NotIn", "Exists", "DoesNotExist")
            one: Json = {"key": key, "operator": operator}
            if operator in ("In", "NotIn"):
                one["values"] = self.dice.sample([*APPS, "1", "2"], 2)
            found["matchExpressions"] = [one]
        return found

    def affinity(self) -> Json:
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        found: Json = {}
        if self.maybe(0.2):
            terms = [self.node_term() for _ in range(self.dice.randint(1, 3))]
            found["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
        if self.maybe(0.12):
            found["podAffinity"] = {required: [self.pod_term() for _ in range(self.dice.randint(1, 2))]}
        if self.maybe(0.15):
            found["podAntiAffinity"] = {required: [self.pod_term() for _ in range(self.dice.randint(1, 2))]}
        return found

    def pod_term(self) -> Json:
        found: Json = {"topologyKey": self.dice.choice(KEYS)}
        if self.maybe(0.95):
            found["labelSelector"] = self.selector()
        if self.maybe(0.2):
            found["namespaces"] = self.dice.sample(list(NAMESPACES), self.dice.randint(1, 2))
        if self.maybe(0.2):
            found["namespaceSelector"] = self.pick({}, {"matchLabels": {"team": "a"}}, {"matchExpressions": [
                {"key": "env", "operator": "DoesNotExist"}]})  # fmt: skip
        return found

    def spread(self) -> Json:
        found: Json = {
            "maxSkew": self.dice.randint(1, 3),
            "topologyKey": self.dice.choice(KEYS),
            "whenUnsatisfiable": self.pick("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
        }
        if self.maybe(0.95):
            found["labelSelector"] = self.selector()
        if found["whenUnsatisfiable"] == "DoNotSchedule" and self.maybe(0.3):
            found["minDomains"] = self.dice.randint(1, 4)
        if self.maybe(0.2):
            found["nodeAffinityPolicy"] = self.pick("Honor", "Ignore")
        if self.maybe(0.2):
            found["nodeTaintsPolicy"] = self.pick("Honor", "Ignore")
        if self.maybe(0.2):
            found["matchLabelKeys"] = ["rev"]
        return found


ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


class VolumeCases(Cases):
    """Cases whose pod has volume claims: mostly bound ones, with volumes that few nodes can reach."""

    def case(self, number: int) -> Json:
        case = super().case(number)
        for node in case["nodes"]:
            key = self.pick(ZONE, ZONE, OLD_ZONE, "")
            if key:
                node["metadata"]["labels"][key] = self.dice.choice(ZONES)
        pod = case["pod"]
        names = [f"c{i}" for i in range(self.dice.randint(1, 2))]
        pod["spec"]["volumes"] = [
            {"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}} for name in names
        ] + [{"name": "plain", "emptyDir": {}}]
        for name in names:
            case["objects"] += self.claim(name, pod["metadata"]["namespace"])
        for other in case["pods"]:
            if self.maybe(0.06):  # another's claim of that name, or the very same
                other["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c0"}}]
        if self.maybe(0.5):
            self.attach(case)
        # fewer other obstacles, or nothing would be left for the volumes to decide
        for key in ("topologySpreadConstraints", "nodeSelector"):
            pod["spec"].pop(key, None)
        pod["spec"]["tolerations"] = [{"operator": "Exists"}]
        return case

    def attach(self, case: Json) -> None:
        """Volumes of a CSI driver: the pod's, those of pods that run, some attached without a pod; limits of nodes."""
        driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
        for node in case["nodes"]:
            name, count = node["metadata"]["name"], self.pick(0, 1, 2, 3, None)
            drivers = [{"name": self.pick("d", "d", "e"), "nodeID": name}]
            if count is not None:
                drivers[0]["allocatable"] = {"count": count}
            if self.maybe(0.9):
                case["objects"].append({**driver, "metadata": {"name": name}, "spec": {"drivers": drivers}})
        for one in case["objects"]:
            if one["kind"] == "PersistentVolume" and self.maybe(0.8):
                self.by_csi(one)
        for i, pod in enumerate(case["pods"]):
            if self.maybe(0.5):
                made = self.claim(f"old{i}", pod["metadata"]["namespace"])
                case["objects"] += [self.by_csi(one) if one["kind"] == "PersistentVolume" else one for one in made]
                pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"old{i}"}}]
        volumes = [one["metadata"]["name"] for one in case["objects"] if one["kind"] == "PersistentVolume"]
        for i in range(self.dice.randint(0, 3) if volumes else 0):
            node = self.dice.choice(case["nodes"])["metadata"]["name"]
            spec = {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": self.dice.choice(volumes)}}
            about = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": f"va{i}"}}
            case["objects"].append({**about, "spec": spec, "status": {"attached": True}})

    def by_csi(self, volume: Json) -> Json:
        for key in ("hostPath", "local"):
            volume["spec"].pop(key, None)
        handle = self.pick(volume["metadata"]["name"], volume["metadata"]["name"], "shared")
        volume["spec"]["csi"] = {"driver": self.pick("d", "d", "d", "e"), "volumeHandle": handle}
        return volume

    def claim(self, name: str, namespace: str) -> list[Json]:
        """A claim with its volume, or one that lacks something."""
        metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        modes = [self.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")]
        spec: Json = {"accessModes": modes, "storageClassName": ""}
        phase = "Bound"
        trouble = self.pick("unbound", "lost", "leaving", "half", "no volume", "no claim") if self.maybe(0.12) else ""
        if trouble != "unbound":
            spec["volumeName"] = f"pv-{name}"
        if trouble not in ("unbound", "half"):
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        if trouble in ("unbound", "lost"):
            phase = {"unbound": "Pending", "lost": "Lost"}[trouble]
        if trouble == "leaving":
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            metadata["finalizers"] = ["kubernetes.io/pvc-protection"]
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec,
                 "status": {"phase": phase}}  # fmt: skip
        found = [] if trouble == "no claim" else [claim]
        return found if trouble == "no volume" else [*found, self.volume(name, namespace)]

    def volume(self, name: str, namespace: str) -> Json:
        spec: Json = {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            self.pick("hostPath", "local"): {"path": "/v"},
            "claimRef": {"kind": "PersistentVolumeClaim", "name": name, "namespace": namespace, "uid": f"uid-{name}"},
        }  # fmt: skip
        if self.maybe(0.6):
            terms = [self.node_term() for _ in range(self.dice.randint(1, 2))]
            if self.maybe(0.5):
                hosts = [f"n{self.dice.randint(0, 6)}" for _ in range(self.dice.randint(1, 4))]
                one = {"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}
                terms = [{"matchExpressions": [one]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        labels = {}
        if self.maybe(0.35):
            labels[self.pick(ZONE, OLD_ZONE)] = self.pick(*ZONES, "z1__z2", "")
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv-{name}", "labels": labels},
                "spec": spec, "status": {"phase": "Bound"}}  # fmt: skip
