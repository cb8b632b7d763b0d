//go:build api

package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

// startController starts an API server with what deploy/pav has, and more manifests, and the controller in this
// process, with the rights of its own account.
func startController(t *testing.T, more ...string) *apiserver.One {
	t.Helper()
	s := apiserver.StartOne(t, apiserver.Pods)
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(address, ":")
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	root, err := devcluster.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, manifests := range more {
		if err := kit.Apply(t.Context(), s, filepath.Join(root, manifests)); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := kit.ReadManifests(filepath.Join(root, "deploy", "pav"))
	if err == nil {
		err = kit.WebhooksAt(address, objects)
	}
	if err == nil {
		err = kit.ApplyObjects(t.Context(), s, objects)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := options{mode: "controller", kubeconfig: s.Kubeconfig("pod-provisioner-controller"), root: t.TempDir()}
	o.flags = kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 15, SyncPeriod: 10 * time.Hour, Rate: kube.Rate{QPS: 100, Burst: 200}}
	o.control = controllerOptions{namespace: kit.PodsNamespace, webhook: number}
	apiserver.InBackground(t, "pod-provisioner", o.run)
	return s
}

// object reads one of YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &out.Object); err != nil {
		t.Fatal(err)
	}
	return out
}

const plain = `
apiVersion: pav.albertofaria.github.io/v1alpha1
kind: PavProvisioner
metadata: {name: plain}
spec:
  provisioningModes: [Dynamic]
  volumeCreation: {capacity: "{{ requestedMinCapacity }}"}
  volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}
`

// TestController has one controller, in a cluster of DPUs, answer API servers and attachments: a process can have no
// second one.
func TestController(t *testing.T) {
	s := startController(t, "crds/dpu", "deploy/dpu/00-namespace.yaml", "deploy/dpu/pod-provisioner-rbac.yaml")
	awaitWebhook(t, s)
	t.Run("refuses bad provisioners", func(t *testing.T) { refusesBad(t, s) })
	t.Run("has a storage revoke a DPU", func(t *testing.T) { revokes(t, seizure{s, t}) })
}

// refusesBad: an API server refuses what is wrong when it is applied, by its schema, its
// rules or the webhook, and names the field.
func refusesBad(t *testing.T, s *apiserver.One) {
	ctx := t.Context()
	for name, c := range map[string]struct{ from, to, want string }{
		"name that is no label":           {"name: plain", "name: not.a.label", "metadata.name"},
		"name that is too long":           {"name: plain", "name: " + strings.Repeat("a", 64), "metadata.name"},
		"no modes":                        {"provisioningModes: [Dynamic]", "provisioningModes: []", "spec.provisioningModes"},
		"modes are missing":               {"  provisioningModes: [Dynamic]\n", "", "spec.provisioningModes"},
		"unknown mode":                    {"[Dynamic]", "[Magic]", "spec.provisioningModes[0]"},
		"a mode twice":                    {"[Dynamic]", "[Dynamic, Dynamic]", "spec.provisioningModes[1]"},
		"creation of static volumes":      {"[Dynamic]", "[Static]", "volumeCreation is for provisioningModes with Dynamic"},
		"unknown part":                    {"  volumeStaging", "  volumeExpansion: {}\n  volumeStaging", "spec.volumeExpansion"},
		"unknown field of creation":       {"{capacity:", "{size: 1, capacity:", "spec.volumeCreation.size"},
		"unknown field of staging":        {"{podTemplate:", "{ready: true, podTemplate:", "spec.volumeStaging.ready"},
		"no staging":                      {"  volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}\n", "", "spec.volumeStaging"},
		"staging without a pod":           {"{podTemplate: {spec: {containers: [{name: c, image: i}]}}}", "{}", "spec.volumeStaging.podTemplate"},
		"nothing says how large":          {`{capacity: "{{ requestedMinCapacity }}"}`, "{handle: h}", "spec.volumeCreation.capacity"},
		"template that does not end":      {"{{ requestedMinCapacity }}", "{{ requestedMinCapacity", "spec.volumeCreation.capacity"},
		"template with an unknown filter": {"{{ requestedMinCapacity }}", "{{ 1 | b64encode }}", "spec.volumeCreation.capacity"},
		"template that loads another":     {"name: c,", `name: c, args: ["{% include 'x' %}"],`, "spec.volumeStaging.podTemplate.spec.containers[0].args[0]"},
		"capacity below nothing":          {`"{{ requestedMinCapacity }}"`, "-1", "spec.volumeCreation.capacity"},
		"capacity that is no quantity":    {`"{{ requestedMinCapacity }}"`, "10 GB", "spec.volumeCreation.capacity"},
		"capacity of another type":        {`"{{ requestedMinCapacity }}"`, "[1Gi]", "spec.volumeCreation.capacity"},
		"empty handle":                    {"{capacity:", `{handle: "", capacity:`, "spec.volumeCreation.handle"},
		"unknown field of a container":    {"image: i", "imagee: i", `unknown field "spec.containers[0].imagee"`},
		"field of a container, mistyped":  {"image: i", "image: i, args: x", "spec.volumeStaging.podTemplate"},
		"pod without containers":          {"{containers: [{name: c, image: i}]}", "{restartPolicy: Never}", "spec.volumeStaging.podTemplate.spec.containers"},
		"pod template with a status":      {"{spec: {containers", "{status: {}, spec: {containers", "spec.volumeStaging.podTemplate.status"},
		"pod template that is a list":     {"{spec: {containers: [{name: c, image: i}]}}", "[]", "spec.volumeStaging.podTemplate"},
		"timeout that is none":            {"{podTemplate:", "{timeout: soon, podTemplate:", "timeout"},
		"timeout of nothing":              {"{podTemplate:", "{timeout: 0s, podTemplate:", "spec.volumeStaging.timeout"},
		"labels that are none":            {"{podTemplate:", "{nodeSelector: {a: 1}, podTemplate:", "spec.volumeStaging.nodeSelector"},
		"unknown volume mode":             {"  volumeStaging", "  volumeValidation: {volumeModes: [Tape]}\n  volumeStaging", "spec.volumeValidation.volumeModes"},
		"unknown access mode":             {"  volumeStaging", "  volumeValidation: {accessModes: [Once]}\n  volumeStaging", "spec.volumeValidation.accessModes"},
		"revocation without a pod":        {"  volumeStaging", "  volumeRevocation: {timeout: 1m}\n  volumeStaging", "spec.volumeRevocation.podTemplate"},
		"unknown field of revocation":     {"  volumeStaging", "  volumeRevocation: {nodeName: n, podTemplate: {spec: {containers: [{name: c, image: i}]}}}\n  volumeStaging", "spec.volumeRevocation.nodeName"},
		"revocation without containers":   {"  volumeStaging", "  volumeRevocation: {podTemplate: {spec: {hostNetwork: true}}}\n  volumeStaging", "spec.volumeRevocation.podTemplate.spec.containers"},
		"revocation that does not end":    {"  volumeStaging", "  volumeRevocation: {podTemplate: {spec: {containers: [{name: c, image: \"{{ handle\"}]}}}\n  volumeStaging", "spec.volumeRevocation.podTemplate.spec.containers[0].image"},
		"revocation within no time":       {"  volumeStaging", "  volumeRevocation: {timeout: 0s, podTemplate: {spec: {containers: [{name: c, image: i}]}}}\n  volumeStaging", "spec.volumeRevocation.timeout"},
		"least above most":                {"  volumeStaging", "  volumeValidation: {minCapacity: 2, maxCapacity: 1}\n  volumeStaging", "spec.volumeValidation.minCapacity"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(plain, c.from) {
				t.Fatalf("%q is not in the object that is changed", c.from)
			}
			err := s.Create(ctx, object(t, strings.Replace(plain, c.from, c.to, 1)))
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want one that names %s", err, c.want)
			}
		})
	}
	t.Run("what was taken becomes wrong", func(t *testing.T) { staysEditable(ctx, t, s) })
}

// awaitWebhook waits until the webhook takes what is right. Before that it fails closed.
func awaitWebhook(t *testing.T, s *apiserver.One) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := s.Create(ctx, object(t, plain), client.DryRunAll)
		return err == nil, ignoreInternal(err)
	})
	if err != nil {
		t.Fatalf("the webhook does not serve: %v", err)
	}
}

// ignoreInternal lets pass that API servers do not reach the webhook, or do not trust it yet.
func ignoreInternal(err error) error {
	if apierrors.IsInternalError(err) {
		return nil
	}
	return err
}

// staysEditable: the spec of an object cannot become wrong; its labels can be changed meanwhile.
func staysEditable(ctx context.Context, t *testing.T, s *apiserver.One) {
	good := object(t, plain)
	if err := s.Create(ctx, good); err != nil {
		t.Fatal(err)
	}
	if err := s.Patch(ctx, good, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`))); err != nil {
		t.Error(err)
	}
	if err := s.Patch(ctx, good, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"volumeCreation": {"capacity": "{{"}}}`))); !apierrors.IsInvalid(err) {
		t.Errorf("a change that makes it wrong: %v", err)
	}
}
