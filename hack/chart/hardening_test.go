package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// looser are the containers that may do more than others, with the reason. Each is
// "<program> <its mode or kind>: what".
var looser = map[string]string{
	"snap-csi-plugin node: privileged":              "mounts for pods, binds drivers, makes virtual functions and file systems",
	"storage-vendor-dpu-plugin fs: privileged":      "mounts NFS where SNAP sees it",
	"snap-node-driver: root":                        "the sockets of SNAP and of plugins are root's",
	"storage-vendor-dpu-plugin block: root":         "the sockets of SNAP and of the plugin are root's",
	"snap-node-driver: hostNetwork":                 "values ask for it: the link to the host is an interface of the DPU",
	"snap-node-driver: DAC_OVERRIDE":                "the sockets may be of another user of the DPU",
	"storage-vendor-dpu-plugin block: DAC_OVERRIDE": "the socket of SNAP may be of another user of the DPU",
	"snap-csi-plugin node: hostPath":                "/dev, /sys, the modules of the kernel, the kubelet's directories",
	"storage-vendor-dpu-plugin fs: hostPath":        "where SNAP's and the plugin's sockets are, and what it mounts",
	"storage-vendor-dpu-plugin block: hostPath":     "where SNAP's and the plugin's sockets are",
	"snap-node-driver: hostPath":                    "where SNAP's and the plugins' sockets are",
}

// who is a container in the words of looser.
func who(c container) string {
	name := program(c.spec)
	if name == "" {
		return c.name // a sidecar
	}
	for _, arg := range texts(c.spec["args"]) {
		for _, flag := range []string{"--mode=", "--kind="} {
			if kind, ok := strings.CutPrefix(arg, flag); ok && kind != "controller" {
				name += " " + kind
			}
		}
	}
	return name
}

// ofBoth is a field of a container's security context, or else of its pod's.
func ofBoth(c container, field string) any {
	if v, ok := at(c.spec, "securityContext")[field]; ok {
		return v
	}
	return at(c.pod, "securityContext")[field]
}

// loose is what a container may do beyond what every one may.
func loose(c container) []string {
	own := at(c.spec, "securityContext")
	var out []string
	for _, v := range volumesOf(c) {
		if v["hostPath"] != nil {
			out = append(out, "hostPath")
			break
		}
	}
	if own["privileged"] == true {
		return append(out, "privileged") // the rest is without meaning
	}
	if own["allowPrivilegeEscalation"] != false {
		out = append(out, "allowPrivilegeEscalation")
	}
	if own["readOnlyRootFilesystem"] != true {
		out = append(out, "writes to its root")
	}
	if !slices.Contains(texts(at(own, "capabilities")["drop"]), "ALL") {
		out = append(out, "keeps capabilities")
	}
	out = append(out, texts(at(own, "capabilities")["add"])...)
	if profile, _ := ofBoth(c, "seccompProfile").(map[string]any); profile["type"] != "RuntimeDefault" {
		out = append(out, "no seccomp profile")
	}
	if user, ok := ofBoth(c, "runAsUser").(float64); ofBoth(c, "runAsNonRoot") != true || !ok || user == 0 {
		out = append(out, "root")
	}
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		if c.pod[field] == true {
			out = append(out, field)
		}
	}
	return out
}

// volumesOf are the volumes of its pod that a container mounts.
func volumesOf(c container) []map[string]any {
	var out []map[string]any
	mounts, _ := c.spec["volumeMounts"].([]any)
	volumes, _ := c.pod["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if slices.ContainsFunc(mounts, func(m any) bool { return m.(map[string]any)["name"] == volume["name"] }) {
			out = append(out, volume)
		}
	}
	return out
}

// everyContainer calls check for the containers of each set of values in ci/, changed by
// change.
func everyContainer(t *testing.T, change func(map[string]any), check func(release string, c container)) {
	t.Helper()
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		if change != nil {
			change(cases[name])
		}
		out, err := render(root, "r", cases[name], nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containersOf(objects(t, out)) {
			check(name, c)
		}
	}
}

// TestHardened: a container may do what is in the list of looser, for the reason that is
// there, and nothing else. Each says what it needs, so that it is not the first to be
// evicted. Limits are for values: a limit of memory that fits one cluster ends, in a
// greater one, the program that moves volumes off dead hosts.
func TestHardened(t *testing.T) {
	used := map[string]bool{}
	everyContainer(t, nil, func(release string, c container) { wantHardened(t, release, c, used, looser) })
	wantUsed(t, looser, used)
}

// wantHardened: the container may do what is in one of the lists, which is noted as used, and
// says what it needs.
func wantHardened(t *testing.T, of string, c container, used map[string]bool, lists ...map[string]string) {
	t.Helper()
	for _, what := range loose(c) {
		key := who(c) + ": " + what
		if !slices.ContainsFunc(lists, func(list map[string]string) bool { return list[key] != "" }) {
			t.Errorf("%s: container %s of %s: %s, without a reason in the list", of, c.name, c.workload, key)
		}
		used[key] = true
	}
	requests := at(at(c.spec, "resources"), "requests")
	if requests["cpu"] == nil || requests["memory"] == nil {
		t.Errorf("%s: container %s of %s does not say what processor time and memory it needs", of, c.name, c.workload)
	}
}

// wantUsed: a list has no more than is used.
func wantUsed(t *testing.T, list map[string]string, used map[string]bool) {
	t.Helper()
	for key := range list {
		if !used[key] {
			t.Errorf("no container is %s: it is in the list for nothing", key)
		}
	}
}

// TestPlaceIsSet: the Secrets for images reach every pod, and the kubelet's directory every
// path and flag that has it.
func TestPlaceIsSet(t *testing.T) {
	set := func(values map[string]any) {
		values["imagePullSecrets"] = []any{map[string]any{"name": "registry"}}
		for _, name := range []string{"host", "snapCsiPlugin", "node"} {
			inner, _ := values[name].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
				values[name] = inner
			}
			values = inner
		}
		values["kubeletDir"] = "/var/snap/kubelet"
	}
	moved := 0
	everyContainer(t, set, func(release string, c container) {
		secrets, _ := c.pod["imagePullSecrets"].([]any)
		if len(secrets) != 1 || secrets[0].(map[string]any)["name"] != "registry" {
			t.Errorf("%s: %s gets its images by %v", release, c.workload, secrets)
		}
		raw, err := json.Marshal(c.pod)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "/var/lib/kubelet") {
			t.Errorf("%s: %s has the kubelet in /var/lib/kubelet", release, c.workload)
		}
		moved += strings.Count(string(raw), "/var/snap/kubelet")
	})
	if moved == 0 {
		t.Error("no pod has the kubelet's directory")
	}
}

// TestLimits: limits that values set reach each container that has values of its own.
func TestLimits(t *testing.T) {
	limits := "{resources: {limits: {memory: 7Gi}}}"
	for text, want := range map[string][]string{
		"{host: {snapCsiPlugin: {enabled: true, controller: {enabled: true, plugin: " + limits + ", externalProvisioner: " + limits + ", externalAttacher: " + limits + ", externalResizer: " + limits + "}}}}": {"csi-attacher", "csi-provisioner", "csi-resizer", "plugin"},
		"{host: {snapCsiPlugin: {enabled: true, node: {enabled: true, plugin: " + limits + "}}}}":                                                                                                               {"plugin"},
		"{host: {snapHostController: {enabled: true, config: {targetNamespace: ns}, resources: {limits: {memory: 7Gi}}}}}":                                                                                      {"controller"},
		"{serviceDaemonSet: {resources: {memory: 7Gi}}, dpu: {snapNodeDriver: {enabled: true}}}":                                                                                                                {"driver"},
	} {
		out, err := render(rootOf(t), "r", values(t, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, c := range containersOf(objects(t, out)) {
			if at(at(c.spec, "resources"), "limits")["memory"] == "7Gi" {
				have = append(have, c.name)
			}
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			t.Errorf("%s: limited are %v, want %v", text, have, want)
		}
	}
}
