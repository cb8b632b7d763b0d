//go:build e2e

package e2e

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// snapshot makes a VolumeSnapshot of a claim and waits until it is ready.
func (ns *testNamespace) snapshot(ctx context.Context, name, claim string) *corev1.TypedLocalObjectReference {
	GinkgoHelper()
	o := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns.name},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: ptr.To("snap"), Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim},
		},
	}
	Expect(clients.Host.Create(ctx, o)).To(Succeed())
	Eventually(func(ctx context.Context) (bool, error) {
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.Status != nil && ptr.Deref(o.Status.ReadyToUse, false), err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue(), "the snapshot is ready")
	return &corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: name}
}

var _ = Describe("copies of volumes", func() {
	It("keeps what a volume in use held, and gives it to new volumes on another host, also after the volume is gone", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		first := ns.pod(ctx, "first", "host-1", files)
		runs(ctx, first)
		sh(ctx, first, "echo before | dd of=/data-files/text conv=fsync")
		kept := ns.snapshot(ctx, "kept", files.Name)
		sh(ctx, first, "echo after | dd of=/data-files/text conv=fsync")

		restored := ns.claim(ctx, claim{name: "restored", source: kept})
		cloned := ns.claim(ctx, claim{name: "cloned", source: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: files.Name}})
		second := ns.pod(ctx, "second", "host-2", restored, cloned)
		runs(ctx, second)
		Expect(sh(ctx, second, "cat /data-restored/text /data-cloned/text")).To(Equal("before\nafter\n"))
		sh(ctx, second, "echo mine | dd of=/data-restored/text conv=fsync && echo mine | dd of=/data-cloned/text conv=fsync")
		Expect(sh(ctx, first, "cat /data-files/text")).To(Equal("after\n"), "the source has its own data still")

		remove(ctx, podObject(first))
		remove(ctx, files)
		again := ns.claim(ctx, claim{name: "again", source: kept})
		third := ns.pod(ctx, "third", "host-3", again)
		runs(ctx, third)
		Expect(sh(ctx, third, "cat /data-again/text")).To(Equal("before\n"), "a snapshot outlives its volume")
	})

	It("says on the user's object what a snapshot waits for", func(ctx context.Context) {
		newNamespace(ctx)
		o := &moorv1alpha1.DPUVolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "of-nothing", Namespace: kit.Namespace}}
		o.Spec.DPUVolumeName = "no-such-volume"
		Expect(clients.Host.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { remove(ctx, o) })
		Eventually(func(ctx context.Context) (string, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
			words := ""
			for _, c := range o.Status.Conditions {
				words += c.Message
			}
			return words, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(ContainSubstring("Volume no-such-volume is gone, and nothing was kept of it: delete the snapshot"))
	})
})
