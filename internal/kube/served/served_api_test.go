//go:build api

package served

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/api/apiserver"
)

// TestServer: a real API server publishes what is compared, to an account without rights, and a
// CRD that loses a field, as if another's had been applied over it, is noticed and can be mended.
func TestServer(t *testing.T) {
	o := apiserver.StartOne(t, apiserver.DPU)
	o.Deploy("snap-controller-rbac.yaml")
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig("snap-controller"))
	if err != nil {
		t.Fatal(err)
	}
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := kube.NewScheme(storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme)
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker("DPU cluster", api.OpenAPIV3(), scheme)
	until(t, "all is there", c, func(err error) bool { return err == nil && len(c.compared) == len(c.kinds) })

	crds, err := kube.NewScheme(apiextensionsv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.RESTConfigFromKubeConfig(o.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	writes, err := client.New(admin, client.Options{Scheme: crds})
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := writes.Get(t.Context(), client.ObjectKey{Name: "volumeattachments.storage.dpu.nvidia.com"}, crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	epoch := spec.Properties["epoch"]
	rules := spec.XValidations
	delete(spec.Properties, "epoch")
	spec.XValidations = nil
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	if err := writes.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	until(t, "the field is missing", c, func(err error) bool {
		dropped, is := errors.AsType[*DroppedError](err)
		return is && strings.Join(dropped.Fields, " ") == "VolumeAttachment.spec.epoch"
	})
	spec.Properties["epoch"], spec.XValidations = epoch, rules
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	if err := writes.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	until(t, "it is back", c, func(err error) bool { return err == nil })
}

func until(t *testing.T, what string, c *checker, done func(error) bool) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		last = c.check()
		return done(last), nil
	})
	if err != nil {
		t.Fatalf("%s: %v, and the last answer is: %v", what, err, last)
	}
}
