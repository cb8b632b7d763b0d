//go:build e2e

// Package e2e tests Moor on the test bed: real API servers, kubelets and
// sidecars, the emulated SNAP service with its real data path. The bed has to
// be up, with Moor on it. After each test everything must be gone again.
package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/moor"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/skips"
	"github.com/moor-storage/moor/test/specs"
)

const (
	// patience is how long anything that must happen may take on a slow,
	// busy machine.
	patience = 4 * time.Minute
	// calm is how long something must not happen.
	calm = 3 * time.Second
	tick = 100 * time.Millisecond
)

// slow marks the faults, which together take some nine minutes, most of them to
// let time pass: `make e2e` runs them, `make test` does not. ci marks one of each
// kind, which .ci/run does run.
var (
	slow = Label("slow")
	ci   = Label("ci")
)

var (
	bed     *devcluster.Cluster
	clients kit.Clients
)

func TestE2E(t *testing.T) { specs.Run(t, "Moor end to end", skips.EndToEnd) }

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	bed, err = devcluster.Load()
	Expect(err).NotTo(HaveOccurred(), "the test bed must be up: run `make up` or `make e2e`")
	clients, err = kit.Connect(bed)
	Expect(err).NotTo(HaveOccurred())
	Expect(moor.Deploy(ctx, bed, GinkgoWriter)).To(Succeed())
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	go kit.KeepSidecars(keeping, bed, GinkgoWriter.Printf)
	Expect(kit.Apply(ctx, clients.Host, filepath.Join(bed.Root(), "deploy", "examples", "storage.yaml"))).To(Succeed())
	Eventually(policyReady).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(metav1.ConditionTrue))
})

func policyReady(ctx context.Context) (metav1.ConditionStatus, error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	if err := clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: "local"}, policy); err != nil {
		return "", err
	}
	for _, c := range policy.Status.Conditions {
		if c.Type == storagev1alpha1.ConditionReady {
			return c.Status, nil
		}
	}
	return "", nil
}

// testNamespace is the namespace of one test, with what was there before it.
type testNamespace struct {
	name   string
	before kit.Inventory
	// subjectsMade numbers them.
	subjectsMade int
}

var namespaces int

// newNamespace makes a namespace; when the test ends it is removed, and whatever
// the test left anywhere fails it.
func newNamespace(ctx context.Context) *testNamespace {
	GinkgoHelper()
	namespaces++
	ns := &testNamespace{name: fmt.Sprintf("e2e-%d-%d", GinkgoParallelProcess(), namespaces)}
	var err error
	ns.before, err = kit.Take(ctx, bed, clients)
	Expect(err).NotTo(HaveOccurred())
	Expect(clients.Host.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.name}})).To(Succeed())
	DeferCleanup(ns.clear, NodeTimeout(patience))
	return ns
}

func (ns *testNamespace) clear(ctx context.Context) {
	if CurrentSpecReport().Failed() {
		ns.tell(ctx)
	}
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.name}}
	Expect(client.IgnoreNotFound(clients.Host.Delete(ctx, o))).To(Succeed())
	Eventually(func(ctx context.Context) ([]string, error) {
		now, err := kit.Take(ctx, bed, clients)
		return now.Less(ns.before), err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty(), "left behind")
}

// tell prints what happened to the namespace's pods and claims, for a failed test.
func (ns *testNamespace) tell(ctx context.Context) {
	var pods corev1.PodList
	if err := clients.Host.List(ctx, &pods, client.InNamespace(ns.name)); err == nil {
		for i := range pods.Items {
			GinkgoWriter.Println(kit.Story(ctx, clients.Host, &pods.Items[i]))
		}
	}
	var events corev1.EventList
	if err := clients.Host.List(ctx, &events, client.InNamespace(ns.name)); err == nil {
		for i := range events.Items {
			e := &events.Items[i]
			GinkgoWriter.Printf("%s %s: %s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	var attachments storagev1alpha1.DPUVolumeAttachmentList
	if err := clients.Host.List(ctx, &attachments); err == nil {
		for i := range attachments.Items {
			GinkgoWriter.Printf("attachment %s: %q\n", attachments.Items[i].Name, attachments.Items[i].Status.Message)
		}
	}
}
