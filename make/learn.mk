.PHONY: train bench-learned
TRAIN_MINUTES ?= 75
train: $(BIN)/.dev ## Train the learned policy from scratch: four folds, then all applications; prints the time taken
	$(RUN) benchmarks/train.py --wall $(TRAIN_MINUTES)

bench-learned: $(BIN)/.dev ## The learned policy: every bar on held-out applications, look ahead, gap to annealing, worst case, speed
	$(RUN) benchmarks/learned.py
