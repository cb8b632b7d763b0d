//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"syscall"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// The StorageClasses of deploy/examples/local-driver.yaml.
const (
	localDevice    = "local-device"
	localDirectory = "local-directory"
)

// withLocalDriver skips a test where the driver of one machine is not deployed. Else it makes a namespace, and
// applies the driver's example there.
func withLocalDriver(ctx context.Context) *testNamespace {
	GinkgoHelper()
	if !bed.Options().LocalDriver {
		Skip("this bed has no local driver: bring it up with --local-driver")
	}
	ns := newNamespace(ctx)
	objects, err := kit.ReadManifests(filepath.Join(bed.Root(), "deploy", "examples", "local-driver.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		if o.GetKind() == "Pod" {
			o.SetNamespace(ns.name)
		}
	}
	Expect(kit.ApplyObjects(ctx, clients.Host, objects)).To(Succeed())
	return ns
}

// localVolumes are the names of the images of the driver's volumes, on its host.
func localVolumes() ([]string, error) {
	return filepath.Glob(filepath.Join(layout.MachinePath("host-1", layout.MachineDataDir), "local", "*.img"))
}

var _ = Describe("the driver of volumes of one machine, without a DPU", Label("local-driver"), func() {
	It("has pods run on the machine of its volumes, of either kind and raw, which are gone with their claims", func(ctx context.Context) {
		ns := withLocalDriver(ctx)
		remove(ctx, podObject(client.ObjectKey{Namespace: ns.name, Name: "scratch"}))
		files := ns.claim(ctx, claim{name: "files", class: localDirectory})
		device := ns.claim(ctx, claim{name: "device", class: localDevice})
		raw := ns.claim(ctx, claim{name: "raw", class: localDevice, mode: corev1.PersistentVolumeBlock})
		key := ns.pod(ctx, "user", "", files, device, raw) // kube-scheduler knows where there is room
		Expect(runs(ctx, key).Spec.NodeName).To(Equal("host-1"))
		for _, dir := range []string{"/data-files", "/data-device"} {
			Expect(sh(ctx, key, "echo here > %[1]s/x && sync %[1]s/x && cat %[1]s/x", dir)).To(Equal("here\n"))
		}
		Expect(filesystemBytes(ctx, key, "files")).To(And(BeNumerically("<=", 64<<20), BeNumerically(">", 48<<20)))
		Expect(sh(ctx, key, "dd if=/dev/zero of=/data-files/full bs=1M count=80 2>&1 || true")).To(ContainSubstring("No space left on device"))
		Expect(sh(ctx, key, "blockdev --getsize64 /dev/raw")).To(Equal("67108864\n"))
		Expect(sh(ctx, key, "echo raw | dd of=/dev/raw conv=fsync 2>/dev/null; head -c 4 /dev/raw")).To(Equal("raw\n"))

		remove(ctx, podObject(key))
		for _, c := range []*corev1.PersistentVolumeClaim{files, device, raw} {
			remove(ctx, c)
		}
		Eventually(localVolumes).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	})

	It("keeps a directory in use while it is killed and started again", func(ctx context.Context) {
		ns := withLocalDriver(ctx)
		files := ns.claim(ctx, claim{name: "files", class: localDirectory})
		key := ns.pod(ctx, "user", "", files)
		pod := runs(ctx, key)
		sh(ctx, key, "echo one | dd of=/data-files/x conv=fsync")
		Expect(bed.Kill("local-driver", syscall.SIGKILL)).To(Succeed())
		sh(ctx, key, "echo two | dd of=/data-files/x oflag=append conv=notrunc,fsync")
		Expect(bed.Restart(ctx, "local-driver")).To(Succeed())
		sh(ctx, key, "echo three | dd of=/data-files/x oflag=append conv=notrunc,fsync")
		after := runs(ctx, key)
		Expect(after.UID).To(Equal(pod.UID))
		Expect(after.Status.ContainerStatuses[0].RestartCount).To(BeZero())

		remove(ctx, podObject(key)) // by the new process
		again := ns.pod(ctx, "again", "", files)
		runs(ctx, again)
		Expect(sh(ctx, again, "cat /data-files/x")).To(Equal("one\ntwo\nthree\n"))
	})

	It("grows, keeps snapshots, and makes volumes of them", func(ctx context.Context) {
		ns := withLocalDriver(ctx)
		device := ns.claim(ctx, claim{name: "device", class: localDevice, mode: corev1.PersistentVolumeBlock})
		first := ns.pod(ctx, "first", "", device)
		runs(ctx, first)
		sh(ctx, first, "echo before | dd of=/dev/device conv=fsync")
		kept := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "kept", Namespace: ns.name},
			Spec:       snapshotv1.VolumeSnapshotSpec{VolumeSnapshotClassName: ptr.To("local"), Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &device.Name}},
		}
		Expect(clients.Host.Create(ctx, kept)).To(Succeed())
		Eventually(func(ctx context.Context) (bool, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(kept), kept)
			return kept.Status != nil && ptr.Deref(kept.Status.ReadyToUse, false), err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue())
		sh(ctx, first, "echo after! | dd of=/dev/device conv=fsync")

		grow(ctx, device, "96Mi")
		Eventually(func() string { return sh(ctx, first, "blockdev --getsize64 /dev/device") }).WithContext(ctx).
			WithTimeout(patience).WithPolling(tick).Should(Equal("100663296\n"))

		restored := ns.claim(ctx, claim{
			name: "restored", class: localDevice, mode: corev1.PersistentVolumeBlock,
			source: &corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: kept.Name},
		})
		cloned := ns.claim(ctx, claim{
			name: "cloned", class: localDevice, mode: corev1.PersistentVolumeBlock, size: "96Mi",
			source: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: device.Name},
		})
		second := ns.pod(ctx, "second", "", restored, cloned)
		runs(ctx, second)
		Expect(sh(ctx, second, "head -c 7 /dev/restored; head -c 7 /dev/cloned")).To(Equal("before\nafter!\n"))
	})

	It("makes a volume for a pod that describes it, as the example has it, and removes it with the pod", func(ctx context.Context) {
		ns := withLocalDriver(ctx)
		scratch := podObject(client.ObjectKey{Namespace: ns.name, Name: "scratch"})
		Eventually(func(ctx context.Context) (corev1.PodPhase, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(scratch), scratch)
			return scratch.Status.Phase, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(corev1.PodSucceeded))
		remove(ctx, scratch)
		Eventually(localVolumes).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
	})
})
