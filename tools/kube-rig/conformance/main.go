// Command conformance runs Kubernetes' own [sig-scheduling] end-to-end specs against whatever binds pods of
// `default-scheduler`. The specs are those of the module in go.mod, unchanged; only the entry is ours, because the
// upstream one links every special interest group's tests (four times the build).
//
// Flags are those of the upstream suite: --kubeconfig, --ginkgo.focus, --ginkgo.skip, --ginkgo.dry-run,
// --ginkgo.json-report.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/klog/v2"

	// Names of features that specs are labelled with; without it the framework refuses the specs as mislabelled.
	_ "k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	e2enode "k8s.io/kubernetes/test/e2e/framework/node"
	// Makes each spec wait at its end until nodes are ready again, as upstream does.
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

// Part of upstream's setup that these specs rely on: how many nodes there are. Its other parts wait for system pods
// (there are none here) and pull images (simulated nodes need none).
var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err)
	nodes, err := e2enode.GetReadySchedulableNodes(ctx, client)
	framework.ExpectNoError(err)
	framework.TestContext.CloudConfig.NumNodes = len(nodes.Items)
})

// outcome is the part of testing.T that ginkgo needs: the suite is a program, so that it can be built and cached like
// every other part of the rig.
type outcome struct{ failed bool }

func (o *outcome) Fail() { o.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	klog.EnableContextualLogging(true)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	// One order for all runs: a spec that leaves something behind must hurt the same one after it each time.
	suite.RandomizeAllSpecs = false
	result := &outcome{}
	ginkgo.RunSpecs(result, "scheduling", suite, reporter)
	if result.failed {
		os.Exit(1)
	}
}
