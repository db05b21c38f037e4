.PHONY: bench-web-server
bench-web-server: $(BIN)/.dev ## The server's side of the dashboard: 50 viewers, event latency, explanations, documents
	$(RUN) benchmarks/web_server.py
