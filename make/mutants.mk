MUTANTS ?= --processes $(shell nproc)
.PHONY: mutants
mutants: $(BIN)/.dev ## Plant 200 small faults, one at a time, and see whether the tests notice; goes on where it stopped (MUTANTS="--processes 16 --seed 1 --room live" for options)
	$(RUN) tools/mutants $(MUTANTS)
