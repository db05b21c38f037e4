.PHONY: mutants
mutants: $(BIN)/.dev ## Plant 200 small faults, one at a time, and see whether the tests notice; goes on where it stopped
	$(RUN) tools/mutants
