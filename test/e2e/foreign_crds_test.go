//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// additions are the fields that Moor's CRDs have and DPF's have not, by plural name of the
// kind in the host cluster.
var additions = map[string][]string{
	"dpuvolumes": {
		"spec.source", "spec.accessibleFrom", "spec.mutableParameters", "spec.replication", "spec.deadMount",
		"status.replicas", "status.lastGrant", "status.restarts",
		"status.state.volumeInfo.mutableParameters", "status.state.volumeInfo.accessibleTopology",
	},
	"dpuvolumeattachments": {"spec.role", "spec.warmth", "spec.readOnly", "spec.requester", "status.epoch", "status.warmth"},
}

// comparing are the processes of the bed that end where their fields are dropped.
var comparing = []string{hostController, "snap-csi-plugin"}

// foreignCRD has the host cluster serve a kind as DPF's operator does: with DPF's fields alone, and
// without rules about others. The end of the test, and the function, bring Moor's CRD back.
func foreignCRD(ctx context.Context, kind string) (moors func(context.Context)) {
	GinkgoHelper()
	moors = func(ctx context.Context) {
		GinkgoHelper()
		Expect(kit.Apply(ctx, clients.Host, filepath.Join(bed.Root(), "crds", "host", storagev1alpha1.GroupVersion.Group+"_"+kind+".yaml"))).To(Succeed())
		start(ctx, comparing...)
	}
	DeferCleanup(moors)
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	Expect(clients.Host.Get(ctx, client.ObjectKey{Name: kind + "." + storagev1alpha1.GroupVersion.Group}, crd)).To(Succeed())
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	Expect(err).NotTo(HaveOccurred())
	for _, path := range additions[kind] {
		withoutField(versions[0].(map[string]any), path)
	}
	withoutRules(versions[0])
	Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(Succeed())
	Expect(clients.Host.Update(ctx, crd)).To(Succeed())
	return moors
}

// additionsOf is what Moor's fields say of a volume, and of its attachments by their hosts.
func additionsOf(ctx context.Context, name string) map[string]string {
	GinkgoHelper()
	volume, all := &storagev1alpha1.DPUVolume{}, &storagev1alpha1.DPUVolumeAttachmentList{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: name}, volume)).To(Succeed())
	Expect(clients.Host.List(ctx, all, client.InNamespace(kit.Namespace))).To(Succeed())
	replication, err := json.Marshal(volume.Spec.Replication)
	Expect(err).NotTo(HaveOccurred())
	grant, err := json.Marshal(volume.Status.LastGrant)
	Expect(err).NotTo(HaveOccurred())
	out := map[string]string{"replication": string(replication), "last grant": string(grant)}
	for i := range all.Items {
		if a := &all.Items[i]; a.Spec.DPUVolumeName == name {
			out[a.Spec.DPUNodeName] = fmt.Sprintf("%s, epoch %d, UID %s", a.Spec.Role, a.Status.Epoch, a.UID)
		}
	}
	return out
}

func logOf(process string) string {
	GinkgoHelper()
	text, err := os.ReadFile(bed.Log(process))
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// withoutField takes a field out of the schema of a version.
func withoutField(version map[string]any, path string) {
	GinkgoHelper()
	at := []string{"schema", "openAPIV3Schema"}
	for field := range strings.SplitSeq(path, ".") {
		at = append(at, "properties", field)
	}
	_, found, err := unstructured.NestedFieldNoCopy(version, at...)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue(), "Moor's CRD has %s", path)
	unstructured.RemoveNestedField(version, at...)
}

// withoutRules takes the rules out of a schema.
func withoutRules(of any) {
	switch at := of.(type) {
	case map[string]any:
		delete(at, "x-kubernetes-validations")
		for _, v := range at {
			withoutRules(v)
		}
	case []any:
		for _, v := range at {
			withoutRules(v)
		}
	}
}

var _ = Describe("CRDs of DPF in the place of Moor's", slow, bothModes, func() {
	for _, kind := range slices.Sorted(maps.Keys(additions)) {
		It("end the controllers in words, and once Moor's are back nothing is lost: "+kind, ci, func(ctx context.Context) {
			ns := faulty(ctx)
			s := ns.subject(ctx, "host-1")
			before, logged := additionsOf(ctx, s.volume), map[string]int{}
			for _, name := range comparing {
				logged[name] = len(logOf(name))
			}
			moors := foreignCRD(ctx, kind)
			By("waiting for the controllers to end")
			for _, name := range comparing {
				Eventually(func() bool { return bed.Running(name) }).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeFalse(), name+" ends")
				Expect(logOf(name)[logged[name]:]).To(And(ContainSubstring("the API server drops"), ContainSubstring("apply Moor's CRDs")))
			}
			s.stays(ctx)
			moors(ctx)
			By("comparing what the objects say with what they said")
			Eventually(func(ctx context.Context) map[string]string { return additionsOf(ctx, s.volume) }).WithContext(ctx).
				WithTimeout(patience).WithPolling(tick).Should(Equal(before))
			s.stays(ctx)
			d := within(hostDead)
			powerOff(ctx, s.host)
			s.again(ctx, d)
			Expect(s.receipt(ctx)).To(Equal(moorv1alpha1.ReceiptDPU))
			s.judge(ctx)
		})
	}
})
