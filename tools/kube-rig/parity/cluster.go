package main

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"    // the defaults that the API server fills in
	_ "k8s.io/kubernetes/pkg/apis/storage/install" // and for storage classes
)

// Cluster is a decoded case, with the API server's defaults filled in.
type Cluster struct {
	pod     *v1.Pod
	nodes   []*v1.Node
	pods    []*v1.Pod
	objects []runtime.Object
}

func decode(asked Case) (*Cluster, error) {
	cluster := &Cluster{pod: &v1.Pod{}}
	if err := decodeOne(asked.Pod, cluster.pod); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	for i, raw := range asked.Nodes {
		node := &v1.Node{}
		if err := decodeOne(raw, node); err != nil {
			return nil, fmt.Errorf("nodes[%d]: %w", i, err)
		}
		cluster.nodes = append(cluster.nodes, node)
	}
	known := map[string]bool{}
	for _, node := range cluster.nodes {
		known[node.Name] = true
	}
	for i, raw := range asked.Pods {
		pod := &v1.Pod{}
		if err := decodeOne(raw, pod); err != nil {
			return nil, fmt.Errorf("pods[%d]: %w", i, err)
		}
		// As the scheduler's cache: pods that have ended hold nothing, unbound ones are nowhere.
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if !ended && known[pod.Spec.NodeName] {
			cluster.pods = append(cluster.pods, pod)
		}
	}
	for i, raw := range asked.Objects {
		object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		legacyscheme.Scheme.Default(object)
		cluster.objects = append(cluster.objects, object)
	}
	return cluster, nil
}

func decodeOne(raw json.RawMessage, into runtime.Object) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return err
	}
	if pod, ok := into.(*v1.Pod); ok && pod.Namespace == "" {
		pod.Namespace = "default"
	}
	legacyscheme.Scheme.Default(into)
	return nil
}
