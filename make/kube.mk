# A real cluster: built from Go modules, started on loopback. docs/kube-rig.md tells how.
KUBERIG := PYTHONPATH=tools/kube-rig $(PYTHON) -m kuberig
KUBE_UP ?= --real 1 --argo
BENCH_KUBE ?=
BENCH_KUBE_ARGO ?=

.PHONY: kube-rig kube-up kube-down kube-status
kube-rig: ## Build Kubernetes, KWOK, Argo and containerd from source (about 14 minutes cold, nothing when done)
	sh scripts/install-kube.sh
	$(KUBERIG) build

kube-up: kube-rig ## Start a cluster on loopback; KUBE_UP="--kwok 1000 --real 2 --argo" says what is in it
	$(KUBERIG) up $(KUBE_UP)

kube-down: ## Stop it
	$(KUBERIG) down

kube-status: ## What of it runs
	$(KUBERIG) status

.PHONY: test-cluster
test-cluster: $(BIN)/.dev kube-rig ## Tests on real clusters: the rig of this machine, or the one of KUBECONFIG
	$(BIN)/pytest -n 0 tests/cluster

.PHONY: test-kueue
test-kueue: $(BIN)/.dev kube-rig ## Beside a real Kueue: gates, quotas, its topology, nodes that sleep (builds it: five minutes)
	$(KUBERIG) build kueue
	WATTFLOW_KUEUE=1 $(BIN)/pytest -n 0 tests/cluster/test_kueue.py

.PHONY: test-volcano
test-volcano: $(BIN)/.dev kube-rig ## Beside a real Volcano on the same nodes: no overcommit, its jobs placed by us, gangs (builds it: ten minutes)
	$(KUBERIG) build volcano
	WATTFLOW_VOLCANO=1 $(BIN)/pytest -n 0 tests/cluster/test_volcano.py

.PHONY: test-versions
OTHER_KUBE ?= 1.35.8
OTHER_ARGO ?= 3.6.12
OTHER_TESTS ?= scheduler argo scheduler_argo scheduler_scores sleep trial helm
test-versions: export KUBE_VERSION := $(OTHER_KUBE)
test-versions: export ARGO_VERSION := $(OTHER_ARGO)
test-versions: $(BIN)/.dev ## A slice of test-cluster with OTHER_KUBE=1.35.8 and OTHER_ARGO=3.6.12 (builds them: fifteen minutes)
	$(KUBERIG) build
	$(BIN)/pytest -n 0 $(OTHER_TESTS:%=tests/cluster/test_%.py)

.PHONY: image test-image
IMAGE ?= out/wattflow-image.tar
image: ## The scheduler's image as an OCI archive (IMAGE=out/…tar, BASE=python:3.11-slim or packages); needs root
	sh scripts/build-image.sh $(IMAGE)

test-image: $(BIN)/.dev kube-rig image ## The image as a Deployment on the rig's real node (about six minutes, no part of test-cluster)
	WATTFLOW_IMAGE=$(abspath $(IMAGE)) $(BIN)/pytest -n 0 tests/cluster/test_image.py

.PHONY: bench-kube
bench-kube: $(BIN)/.dev kube-rig ## Binds a second on 1,000 and 5,000 KWOK nodes: the API server, kube-scheduler as shipped and unthrottled, ours
	$(BENCH) benchmarks/kube.py $(BENCH_KUBE)

.PHONY: bench-kube-shared
BENCH_KUBE_SHARED ?=
bench-kube-shared: $(BIN)/.dev kube-rig ## Both schedulers fill the same nodes with 10,000 pods, our leader killed again and again: no overcommit, no double bind
	$(BENCH) benchmarks/kube_shared.py $(BENCH_KUBE_SHARED)

.PHONY: bench-kube-argo
bench-kube-argo: $(BIN)/.dev kube-rig ## Argo with kube-scheduler and with ours: makespan and energy of a 1,000-task workflow and recorded ones
	$(BENCH) benchmarks/kube_argo.py $(BENCH_KUBE_ARGO)
