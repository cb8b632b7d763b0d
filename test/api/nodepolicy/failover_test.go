//go:build api

package nodepolicy

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestFailoverRequests: who requests a failover stands in the request, and is who wrote it;
// a request that stands is not in the way of others who write the object.
func TestFailoverRequests(t *testing.T) {
	h := open(t)
	host := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-c"}}
	must(t, clusters.Host.Create(t.Context(), host))
	t.Cleanup(func() {
		must(t, clusters.Host.Delete(context.WithoutCancel(t.Context()), kubetest.DPUStorageNode("c")))
	})
	ask := func(by string) *moorv1alpha1.FailoverRequest {
		return &moorv1alpha1.FailoverRequest{DPUName: "dpu-c", BootID: "b", Time: metav1.Now().Rfc3339Copy(), RequestedBy: by, Reason: "drill"}
	}
	write := func(change func(*moorv1alpha1.DPUStorageNodeSpec), options ...client.PatchOption) error {
		n := host.DeepCopy()
		change(&n.Spec)
		err := clusters.Host.Patch(t.Context(), n, client.MergeFrom(host), options...)
		if err == nil && len(options) == 0 {
			host = n
		}
		return err
	}
	forged := func(s *moorv1alpha1.DPUStorageNodeSpec) { s.Failover = ask("someone else") }
	soonRefused(t, func() error { return write(forged, client.DryRunAll) }, "spec.failover.requestedBy must be your user name, ")
	self := userName(t, clusters.HostConfig)
	must(t, write(func(s *moorv1alpha1.DPUStorageNodeSpec) { s.Failover = ask(self) }))
	must(t, write(func(s *moorv1alpha1.DPUStorageNodeSpec) { s.HostMode = moorv1alpha1.ZeroTrust }))
	if err := write(func(s *moorv1alpha1.DPUStorageNodeSpec) { s.Failover.Reason = "" }); !apierrors.IsInvalid(err) {
		t.Errorf("a request without a reason: %v", err)
	}
	must(t, write(func(s *moorv1alpha1.DPUStorageNodeSpec) { s.Failover = nil }))
	honest := ask("system:serviceaccount:dpf-operator-system:snap-csi-plugin-node") // or two policies refuse it
	own := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: moorv1alpha1.DPUStorageNodeSpec{Failover: honest}}
	refused(t, h.a.Create(t.Context(), own, client.DryRunAll), "a host does not request its failover")
}

// soonRefused tries until a policy that was just applied refuses, with these words.
func soonRefused(t *testing.T, try func() error, words string) {
	t.Helper()
	var err error
	_ = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		err = try()
		return err != nil, nil
	})
	refused(t, err, words)
}

// userName is that by which an API server knows who has this configuration.
func userName(t *testing.T, config *rest.Config) string {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	got, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	return got.Status.UserInfo.Username
}
