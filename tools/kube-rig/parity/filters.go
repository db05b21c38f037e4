package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

const (
	settleEvery = 20 * time.Millisecond
	settleLimit = 5 * time.Second
)

// ask runs the default PreFilter and Filter plugins of kube-scheduler over the case.
func (c *Cluster) ask(ctx context.Context) (Answer, error) {
	if len(c.pod.Spec.SchedulingGates) > 0 {
		return c.allRejected(names.SchedulingGates, "the pod has scheduling gates"), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filters, started, err := c.build(ctx)
	if err != nil {
		return Answer{}, err
	}
	answer, err := c.run(ctx, filters)
	if !started {
		return answer, err
	}
	// The volume filters keep caches that follow their informers on goroutines of their own and tell nobody when they
	// have caught up: ask until three answers in a row are the same.
	same, ends := 1, time.Now().Add(settleLimit)
	for same < 3 && time.Now().Before(ends) {
		time.Sleep(settleEvery)
		again, problem := c.run(ctx, filters)
		if reflect.DeepEqual(again, answer) && fmt.Sprint(err) == fmt.Sprint(problem) {
			same++
		} else {
			same = 1
		}
		answer, err = again, problem
	}
	return answer, err
}

// build makes a framework with the default profile over this case's snapshot. Informers run only where volumes ask for
// them (it takes a tenth of a second); the listers of the other filters are filled by hand.
func (c *Cluster) build(ctx context.Context) (framework.Framework, bool, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, false, err
	}
	profile := defaults.Profiles[0]
	// Claims of devices are no part of the cases, and the plugin wants live caches of its own.
	enabled := &profile.Plugins.MultiPoint.Enabled
	*enabled = slices.DeleteFunc(*enabled, func(p config.Plugin) bool { return p.Name == names.DynamicResources })
	client := fake.NewClientset()
	volumes := c.hasVolumes()
	if volumes {
		client = fake.NewClientset(c.everything()...)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	made, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(internalcache.NewSnapshot(c.pods, c.nodes)),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, false, err
	}
	if volumes {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		return made, true, nil
	}
	return made, false, c.fill(factory)
}

func (c *Cluster) hasVolumes() bool {
	for _, object := range c.objects {
		switch object.(type) {
		case *v1.PersistentVolumeClaim, *v1.PersistentVolume, *storagev1.StorageClass, *storagev1.CSINode:
			return true
		}
	}
	return false
}

func (c *Cluster) everything() []runtime.Object {
	all := append([]runtime.Object{}, c.objects...)
	for _, node := range c.nodes {
		all = append(all, node)
	}
	for _, pod := range c.pods {
		all = append(all, pod)
	}
	return all
}

func (c *Cluster) fill(factory informers.SharedInformerFactory) error {
	core := factory.Core().V1()
	for _, object := range c.objects {
		var index cache.Indexer
		switch object.(type) {
		case *v1.Namespace:
			index = core.Namespaces().Informer().GetIndexer()
		case *v1.Service:
			index = core.Services().Informer().GetIndexer()
		case *v1.ReplicationController:
			index = core.ReplicationControllers().Informer().GetIndexer()
		default:
			return fmt.Errorf("objects of type %T have no part in the filters", object)
		}
		if err := index.Add(object); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) run(ctx context.Context, filters framework.Framework) (Answer, error) {
	state := framework.NewCycleState()
	allowed, status, _ := filters.RunPreFilterPlugins(ctx, state, c.pod)
	if status.Code() == fwk.Error {
		return Answer{}, fmt.Errorf("PreFilter %s: %w", status.Plugin(), status.AsError())
	}
	if !status.IsSuccess() {
		return c.allRejected(status.Plugin(), status.Message()), nil
	}
	answer := Answer{Feasible: []string{}, Rejected: map[string]Rejection{}}
	for _, node := range c.nodes {
		if !allowed.AllNodes() && !allowed.NodeNames.Has(node.Name) {
			answer.Rejected[node.Name] = Rejection{"PreFilter", "not among the nodes that PreFilter left"}
			continue
		}
		info, err := filters.SnapshotSharedLister().NodeInfos().Get(node.Name)
		if err != nil {
			return Answer{}, err
		}
		status := filters.RunFilterPlugins(ctx, state, c.pod, info)
		switch {
		case status.IsSuccess():
			answer.Feasible = append(answer.Feasible, node.Name)
		case status.Code() == fwk.Error:
			return Answer{}, fmt.Errorf("%s on %s: %w", status.Plugin(), node.Name, status.AsError())
		default:
			answer.Rejected[node.Name] = Rejection{status.Plugin(), status.Message()}
		}
	}
	return answer, nil
}

func (c *Cluster) allRejected(plugin, reason string) Answer {
	answer := Answer{Feasible: []string{}, Rejected: map[string]Rejection{}}
	for _, node := range c.nodes {
		answer.Rejected[node.Name] = Rejection{plugin, reason}
	}
	return answer
}
