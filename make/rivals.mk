.PHONY: train-rivals bench-rivals
RIVALS_MINUTES ?= 20
train-rivals: $(BIN)/.dev ## Train the literature's learned schedulers on our environment, without each fold and on all; into out/rivals
	$(RUN) -m research.bench_rivals train --wall $(RIVALS_MINUTES)

bench-rivals: $(BIN)/.dev ## The literature's learned schedulers beside the learned policy, held-out applications
	$(RUN) -m research.bench_rivals judge
