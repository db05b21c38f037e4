//go:build tools

// Package tools names Argo's two programs, so that go.mod and go.sum pin what they need.
package tools

import (
	_ "github.com/argoproj/argo-workflows/v4/cmd/argoexec"
	_ "github.com/argoproj/argo-workflows/v4/cmd/workflow-controller"
)
