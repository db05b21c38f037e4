"""HTTP: routes, tokens, OpenAPI, Run files."""
