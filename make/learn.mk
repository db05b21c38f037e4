# Research on the learned policy; its code lies in research/, outside the wheel.
.PHONY: test-research
test-research: $(BIN)/.dev ## Tests of research/: training from scratch, rivals, searches, the experiment of held-out applications
	$(BIN)/pytest -n 2 --dist loadgroup research/tests

.PHONY: train train-two-cores bench-learned bench-adapting tune-portfolio experiment-learned
TRAIN_MINUTES ?= 55
train: $(BIN)/.dev ## Train the learned policy from scratch: four folds, then all applications; prints the time taken
	$(RUN) -m research.train_all --wall $(TRAIN_MINUTES)

train-two-cores: $(BIN)/.dev ## One network for all applications from scratch on two cores, and its time
	$(RUN) -m research.train_all --folds=-1 --workers 2 --wall 8 --out out/two-cores

bench-learned: $(BIN)/.dev ## The learned policy: every bar on held-out applications, worst case, speed
	$(RUN) -m research.bench_learned

experiment-learned: $(BIN)/.dev ## The learned policy beside its opponents on held-out applications, whole; results in out/experiments/learned
	$(RUN) -m research learned

bench-adapting: $(BIN)/.dev ## Fine-tuning after a shift: what a server learns from its record, judged on what comes next
	$(RUN) -m research.bench_adapting

tune-portfolio: $(BIN)/.dev ## Measure every setting of the learned policy's opponent on the training streams
	$(RUN) -m research.tuning

.PHONY: energy-set
energy-set: $(BIN)/.dev ## The energy-labelled set of WfInstances, every file checked against the schema
	$(RUN) -m research.write_energy_set
