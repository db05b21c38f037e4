//go:build tools

// Package tools names Kueue's controller, so that go.mod pins it and `go build` can make it.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
