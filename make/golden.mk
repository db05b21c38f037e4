.PHONY: golden
golden: $(BIN)/.dev ## Write the golden texts of policies and figures anew, after a change on purpose
	@for name in policies figures; do \
	  PYTHONPATH=. NUMBA_DISABLE_JIT=1 $(RUN) -W ignore tests/golden/$$name.py > tests/golden/$$name.new && \
	  mv tests/golden/$$name.new tests/golden/$$name.txt || exit 1; done
	git diff --stat tests/golden
