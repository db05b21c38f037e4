.PHONY: house
HOUSE ?=
house: $(BIN)/.dev ## How simple the house is: lines, loops, heaps, cycles, private uses, wheel, kernels against before (HOUSE="--no-kernels --before COMMIT")
	$(RUN) tools/house $(HOUSE)
