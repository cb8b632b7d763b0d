//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/reference/writelog"
	"github.com/moor-storage/moor/test/kit"
)

var _ = Describe("the main job", func() {
	It("writes through a DPU, moves to another host and reads everything back", bothModes, func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		block := ns.claim(ctx, claim{name: "block", mode: corev1.PersistentVolumeBlock, size: "32Mi"})
		first := ns.pod(ctx, "first", "host-1", files, block)
		runs(ctx, first)
		sh(ctx, first, "echo acknowledged | dd of=/data-files/text conv=fsync && echo raw | dd of=/dev/block bs=4096 conv=sync,fsync")
		volume := volumeOf(ctx, files)
		vendor := vendorVolume(ctx, volume)
		remove(ctx, podObject(first))

		second := ns.pod(ctx, "second", "host-2", files, block)
		runs(ctx, second)
		Expect(sh(ctx, second, "cat /data-files/text")).To(Equal("acknowledged\n"))
		Expect(sh(ctx, second, "head -n 1 /dev/block")).To(Equal("raw\n"))
		sh(ctx, second, "echo more | dd of=/data-files/more conv=fsync")
		Expect(attachment(ctx, "host-2", volume).Status.Epoch).To(BeNumerically("==", 2), "the second writer has the second epoch")

		writes, err := kit.TargetLog(vendor)
		Expect(err).NotTo(HaveOccurred())
		Expect(writersInOrder(writes)).To(Equal([]string{"dpu-1", "dpu-2"}), "no write of the old host after the first of the new one")
	})

	It("makes xfs when the StorageClass says so", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "local", "csi.storage.k8s.io/fstype": "xfs"})
		files := ns.claim(ctx, claim{name: "files", class: class, size: "400Mi"})
		pod := ns.pod(ctx, "pod", "", files)
		runs(ctx, pod)
		Expect(sh(ctx, pod, "grep ' /data-files ' /proc/mounts")).To(ContainSubstring(" xfs "))
		sh(ctx, pod, "echo x | dd of=/data-files/x conv=fsync")
	})

	It("serves three pods on three hosts, two volumes each", func(ctx context.Context) {
		ns := newNamespace(ctx)
		var pods []client.ObjectKey
		for i := 1; i <= 3; i++ {
			a := ns.claim(ctx, claim{name: fmt.Sprintf("a%d", i), size: "32Mi"})
			b := ns.claim(ctx, claim{name: fmt.Sprintf("b%d", i), size: "32Mi"})
			pods = append(pods, ns.pod(ctx, fmt.Sprintf("pod-%d", i), fmt.Sprintf("host-%d", i), a, b))
		}
		for i, pod := range pods {
			runs(ctx, pod)
			sh(ctx, pod, "echo %d | dd of=/data-a%d/x conv=fsync && echo %d | dd of=/data-b%d/x conv=fsync", i, i+1, i, i+1)
		}
		for i, pod := range pods {
			Expect(sh(ctx, pod, "cat /data-a%d/x /data-b%d/x", i+1, i+1)).To(Equal(fmt.Sprintf("%d\n%d\n", i, i)))
		}
	})

	It("lets a second pod on the same host share a ReadWriteOnce volume, and refuses it a ReadWriteOncePod one", func(ctx context.Context) {
		ns := newNamespace(ctx)
		once := ns.claim(ctx, claim{name: "once"})
		pod := ns.claim(ctx, claim{name: "pod", access: corev1.ReadWriteOncePod})
		first := ns.pod(ctx, "first", "host-1", once, pod)
		runs(ctx, first)
		sharing := ns.pod(ctx, "sharing", "host-1", once)
		runs(ctx, sharing)
		sh(ctx, sharing, "echo shared | dd of=/data-once/x conv=fsync")
		Expect(sh(ctx, first, "cat /data-once/x")).To(Equal("shared\n"))

		refused := ns.pod(ctx, "refused", "host-1", pod)
		Eventually(eventsOf(ns.name, "refused")).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
			Should(ContainSubstring("ReadWriteOncePod"))
		remove(ctx, podObject(first))
		runs(ctx, refused)
	})

	It("shows a volume read-only to a pod that asks for no more", bothModes, func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		writer := ns.pod(ctx, "writer", "host-1", files)
		runs(ctx, writer)
		sh(ctx, writer, "echo x | dd of=/data-files/x conv=fsync")
		remove(ctx, podObject(writer))
		reader := podObject(client.ObjectKey{Namespace: ns.name, Name: "reader"})
		reader.Spec = corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers: []corev1.Container{{
				Name: "main", Image: kit.Image, Command: []string{"sleep", "1000000"},
				VolumeMounts: []corev1.VolumeMount{{Name: "files", MountPath: "/data", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "files", ReadOnly: true},
			}}},
		}
		Expect(clients.Host.Create(ctx, reader)).To(Succeed())
		key := client.ObjectKeyFromObject(reader)
		runs(ctx, key)
		Expect(sh(ctx, key, "cat /data/x")).To(Equal("x\n"))
		Expect(sh(ctx, key, "(echo y > /data/y) 2>&1 || true")).To(ContainSubstring("Read-only file system"))
	})
})

// writersInOrder lists who wrote, one entry a turn.
func writersInOrder(writes []writelog.Write) []string {
	var out []string
	for _, w := range writes {
		name := strings.TrimSpace(w.DPU)
		if len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	return out
}
