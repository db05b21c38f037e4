.PHONY: train bench-learned
TRAIN_MINUTES ?= 55
train: $(BIN)/.dev ## Train the learned policy from scratch: four folds, then all applications; prints the time taken
	$(RUN) benchmarks/train.py --wall $(TRAIN_MINUTES)

bench-learned: $(BIN)/.dev ## The learned policy: every bar on held-out applications, look ahead, gap to annealing, worst case, speed
	$(RUN) benchmarks/learned.py

.PHONY: bench-adapting train-two-cores
bench-adapting: $(BIN)/.dev ## Fine-tuning after a shift: what a server learns from its record, judged on what comes next
	$(RUN) benchmarks/adapting.py

train-two-cores: $(BIN)/.dev ## One network for all applications from scratch on two cores, and its time
	$(RUN) benchmarks/train.py --folds=-1 --workers 2 --wall 8 --out out/two-cores

.PHONY: train-ppo
PPO_MINUTES ?= 10
train-ppo: $(BIN)/.dev ## Train the learned policy's place head by PPO (JAX), goes on where it stopped; weights, curve and picture in out/ppo
	$(RUN) -m wattflow.learn.ppo --minutes $(PPO_MINUTES) --out out/ppo --resume
	$(RUN) -m wattflow.learn.ppo --validate out/ppo/ppo-all-seed-1.npz
