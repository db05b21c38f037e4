//go:build tools

// Package tools names Karpenter with its KWOK provider, so that go.mod pins it and `go build` can make it.
package tools

import _ "sigs.k8s.io/karpenter/kwok"
