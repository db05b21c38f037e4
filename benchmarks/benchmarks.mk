# One target per benchmark; each ends with one line per figure: figure NAME VALUE UNIT goal GOAL ok|short

.PHONY: bench-predict
bench-predict: $(BIN)/.dev ## Prediction figures on held-out data
	$(RUN) benchmarks/predict.py
