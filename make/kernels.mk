.PHONY: bench-kernels
BEFORE ?= ../before

bench-kernels: $(BIN)/.dev ## Kernels against another checkout (BEFORE=folder): ns per task, bytes of machine code; COMPILE=5 adds seconds
	$(RUN) benchmarks/kernel_fence.py $(BEFORE) --compile $(or $(COMPILE),0)
