//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/test/kit"
)

var _ = Describe("bad input", func() {
	It("gets words that say what to do", func(ctx context.Context) {
		ns := newNamespace(ctx)
		for i, c := range []struct {
			what       string
			parameters map[string]string
			words      string
		}{
			{"no policy", map[string]string{"functionType": "vf"}, "policy"},
			{"vf and hot-plug", map[string]string{"policy": "local", "functionType": "vf", "hotplugFunction": "true"}, "hotplugFunction"},
			{"no such function", map[string]string{"policy": "local", "functionType": "xf", "a": "", "b": ""}, "functionType"},
			{"a misspelled key", map[string]string{"policy": "local", "functiontype": "vf", "a": "", "b": "", "c": ""}, "functionType"},
			{"a parameter that the vendor does not know", map[string]string{"policy": "local", "color": "red"}, ""},
		} {
			By(c.what)
			class := ns.class(ctx, c.parameters)
			claim := ns.claim(ctx, claim{name: fmt.Sprintf("claim-%d", i), class: class})
			if c.words == "" {
				volumeOf(ctx, claim) // keys that are not ours go to the vendor's plugin, as in DPF
			} else {
				Eventually(eventsOf(ns.name, claim.Name)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(c.words))
			}
			remove(ctx, claim)
		}
	})

	It("of a policy that does not exist is told on the volume, and mended when it appears", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "nowhere", "a": "", "b": "", "c": "", "d": ""})
		files := ns.claim(ctx, claim{name: "files", class: class})
		var name string
		Eventually(func(ctx context.Context) (string, error) {
			list, err := volumesOf(ctx, "nowhere")
			if err != nil || len(list) == 0 {
				return "", err
			}
			name = list[0].Name
			return conditionWords(list[0].Status.Conditions), nil
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("DPUStoragePolicy nowhere does not exist"))
		policy := policyNamed("nowhere")
		Expect(clients.Host.Create(ctx, policy)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { remove(ctx, policy) })
		Expect(volumeOf(ctx, files)).To(Equal(name))
	})

	It("of a claim that is deleted before its policy exists leaves nothing", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.class(ctx, map[string]string{"policy": "never", "a": "", "b": "", "c": "", "d": "", "e": ""})
		files := ns.claim(ctx, claim{name: "files", class: class})
		made := func(ctx context.Context) (int, error) {
			list, err := volumesOf(ctx, "never")
			return len(list), err
		}
		Eventually(made).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(1))
		remove(ctx, files)
		Eventually(made).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeZero())
	})

	It("of a host without a DPU is told in words", func(ctx context.Context) {
		ns := newNamespace(ctx)
		node := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: ns.name}}
		Expect(clients.Host.Create(ctx, node)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { _ = clients.Host.Delete(ctx, node) })
		files := ns.claim(ctx, claim{name: "files"})
		o := byHand(ns.name, node.Name, volumeOf(ctx, files))
		Expect(clients.Host.Create(ctx, o)).To(Succeed())
		Eventually(messageOf(o)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("spec.dpuName"))
		remove(ctx, o)
	})
})

var _ = Describe("a sick DPU", func() {
	inject := func(ctx context.Context, fault fault.Fault) {
		GinkgoHelper()
		Expect(kit.SNAP("dpu-1").Call(ctx, "moor_inject", fault, nil)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(kit.SNAP("dpu-1").Call(ctx, "moor_clear", nil, nil)).To(Succeed()) })
	}

	DescribeTable("is told about on the attachment, and worked with again when it is well",
		func(ctx context.Context, fault fault.Fault, words string) {
			ns := newNamespace(ctx)
			files := ns.claim(ctx, claim{name: "files"})
			volume := volumeOf(ctx, files)
			inject(ctx, fault)
			pod := ns.pod(ctx, "pod", "host-1", files)
			o := byHand("host-1-"+volume, "host-1", volume)
			Eventually(messageOf(o)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(words))
			Expect(kit.SNAP("dpu-1").Call(ctx, "moor_clear", nil, nil)).To(Succeed())
			runs(ctx, pod)
		},
		Entry("SNAP refuses", fault.Fault{Method: "nvme_namespace_create", Error: snapError(-12, "Cannot allocate memory"), Count: -1}, "nvme_namespace_create"),
		Entry("SNAP talks garbage", fault.Fault{Method: "nvme_controller_create", Garbage: true, Count: -1}, "nvme_controller_create"),
		Entry("SNAP never answers", fault.Fault{Method: "nvme_subsystem_create", Hang: true, Count: -1}, "nvme_subsystem_create"),
	)

	It("with no function left says so, and shows the volume once one is free", func(ctx context.Context) {
		ns := newNamespace(ctx)
		var attachments []*storagev1alpha1.DPUVolumeAttachment
		for i := 0; i <= bed.Options().VFs; i++ {
			files := ns.claim(ctx, claim{name: fmt.Sprintf("files-%d", i), size: "16Mi"})
			o := byHand(fmt.Sprintf("%s-%d", ns.name, i), "host-1", volumeOf(ctx, files))
			Expect(clients.Host.Create(ctx, o)).To(Succeed())
			attachments = append(attachments, o)
		}
		var waiting, served *storagev1alpha1.DPUVolumeAttachment
		Eventually(func(ctx context.Context) (int, error) {
			n := 0
			for _, o := range attachments {
				ok, err := shown(o)(ctx)
				if err != nil {
					return 0, err
				}
				if ok {
					n, served = n+1, o
				} else {
					waiting = o
				}
			}
			return n, nil
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(bed.Options().VFs))
		Eventually(messageOf(waiting)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("function"))
		remove(ctx, served)
		Eventually(shown(waiting)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue())
		for _, o := range attachments {
			Expect(client.IgnoreNotFound(clients.Host.Delete(ctx, o))).To(Succeed())
		}
	})

	It("without its vendor plugin says so", func(ctx context.Context) {
		ns := newNamespace(ctx)
		files := ns.claim(ctx, claim{name: "files"})
		volume := volumeOf(ctx, files)
		Expect(bed.Kill("local-vendor-dpu-1", syscall.SIGKILL)).To(Succeed())
		pod := ns.pod(ctx, "pod", "host-1", files)
		o := byHand("host-1-"+volume, "host-1", volume)
		Eventually(messageOf(o)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring("local"))
		Eventually(func(ctx context.Context) error {
			return clients.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Succeed())
		Expect(bed.Restart(ctx, "local-vendor-dpu-1")).To(Succeed())
		runs(ctx, pod)
	})
})
