package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// container is one of a workload.
type container struct {
	workload, name string
	spec           map[string]any
	// pod is the spec of its pod, labels those of the pod.
	pod, labels map[string]any
}

// containersOf are the containers of all workloads, in order.
func containersOf(all map[string]map[string]any) []container {
	var out []container
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(key, "Deployment/") && !strings.HasPrefix(key, "DaemonSet/") {
			continue
		}
		template := at(at(all[key], "spec"), "template")
		pod, labels := at(template, "spec"), at(at(template, "metadata"), "labels")
		for _, kind := range []string{"initContainers", "containers"} {
			list, _ := pod[kind].([]any)
			for _, c := range list {
				spec, _ := c.(map[string]any)
				out = append(out, container{workload: key, name: fmt.Sprint(spec["name"]), spec: spec, pod: pod, labels: labels})
			}
		}
	}
	return out
}

// at is the object in a field; empty if there is none.
func at(o map[string]any, field string) map[string]any {
	inner, _ := o[field].(map[string]any)
	return inner
}

// texts are the elements of a list, as text.
func texts(list any) []string {
	all, _ := list.([]any)
	var out []string
	for _, v := range all {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

// program is what a container runs, as far as its command says so.
func program(spec map[string]any) string {
	if command := texts(spec["command"]); len(command) > 0 {
		return command[0]
	}
	return ""
}
