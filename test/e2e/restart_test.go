//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/moor-storage/moor/test/kit"
)

// controllers are those of Moor and of the vendor, of which there is one each.
var controllers = []string{"snap-csi-plugin", "snap-host-controller", "snap-controller", "snap-external-attacher", "local-vendor"}

// oursOf are the processes of Moor that a pod on a host depends on.
func oursOf(host string) []string {
	dpu := dpuIn(host)
	return append(slices.Clone(controllers), "snap-csi-plugin-"+host, "local-vendor-"+dpu, "snap-node-driver-"+dpu, "snap-emulator-"+dpu)
}

// restart kills a process with SIGKILL and starts it again, as a kubelet would.
func restart(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(bed.Kill(name, syscall.SIGKILL)).To(Succeed())
	Expect(bed.Restart(ctx, name)).To(Succeed())
}

var _ = Describe("a process that is killed", func() {
	It("disturbs no pod at rest: SNAP and its node driver keep identity and data", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		pod := ns.pod(ctx, "pod", "host-1", files)
		runs(ctx, pod)
		volume := volumeOf(ctx, files)
		before := attachment(ctx, "host-1", volume).Status.DPU.DeepCopy()
		sh(ctx, pod, "echo before | dd of=/data-files/x conv=fsync")
		for _, name := range oursOf("host-1") {
			if strings.HasPrefix(name, "snap-emulator") {
				continue
			}
			By("killing " + name)
			restart(ctx, name)
			sh(ctx, pod, "echo after-%s | dd of=/data-files/%s conv=fsync", name, name)
		}
		By("killing the SNAP service, which loses its controllers as SNAP does")
		restart(ctx, "snap-emulator-dpu-1")
		Eventually(func(ctx context.Context) (int, error) {
			subsystems, err := kit.SNAP("dpu-1").NvmeSubsystemList(ctx)
			n := 0
			for _, s := range subsystems {
				if strings.Contains(s.NQN, ":dpf-") {
					for _, ns := range s.Namespaces {
						n += len(ns.Controllers)
					}
				}
			}
			return n, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(1), "the namespace is shown again")
		Eventually(attachedDPU("host-1", volume)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(before), "function, namespace id and UUID stay")
		remove(ctx, podObject(pod))
		again := ns.pod(ctx, "again", "host-1", files)
		runs(ctx, again)
		Expect(sh(ctx, again, "cat /data-files/x")).To(Equal("before\n"))
	})

	It("in the middle of an attach is made up for, whichever it is", func(ctx context.Context) {
		ns := newNamespace(ctx)
		for i, name := range oursOf("host-1") {
			By("killing " + name)
			files := ns.claim(ctx, claim{name: fmt.Sprintf("files-%d", i), size: "32Mi"})
			volumeOf(ctx, files)
			pod := ns.pod(ctx, fmt.Sprintf("pod-%d", i), "host-1", files)
			Eventually(func(ctx context.Context) error {
				return clients.Host.Get(ctx, attachmentKey("host-1", volumeOf(ctx, files)), byHand("", "", ""))
			}).WithContext(ctx).WithTimeout(patience).WithPolling(tick / 10).Should(Succeed())
			restart(ctx, name)
			runs(ctx, pod)
			sh(ctx, pod, "echo %d | dd of=/data-files-%d/x conv=fsync", i, i)
			remove(ctx, podObject(pod))
		}
	})
})
