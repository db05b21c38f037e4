.PHONY: train bench-learned
TRAIN_MINUTES ?= 15
train: $(BIN)/.dev ## Train the learned policy from scratch: four folds, then all applications; prints the time taken
	$(RUN) benchmarks/train.py --minutes $(TRAIN_MINUTES)

bench-learned: $(BIN)/.dev ## The learned policy: every bar on held-out applications, speed of decisions and environment
	$(RUN) benchmarks/learned.py
