.PHONY: bench-frames-grid
bench-frames-grid: $(BIN)/.dev ## The grid alone: 12 designs on 54 traces of 3 M tasks; goes on where it stopped
	$(RUN) benchmarks/frames_grid.py --workers $(or $(WORKERS),2) --picture docs/pictures/frames_grid.svg
