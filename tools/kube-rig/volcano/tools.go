//go:build tools

// Package tools names Volcano's controllers and scheduler, so that go.mod pins them and `go build` can make them.
package tools

import (
	_ "volcano.sh/volcano/cmd/controller-manager"
	_ "volcano.sh/volcano/cmd/scheduler"
)
