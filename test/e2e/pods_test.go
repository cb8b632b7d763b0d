//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/test/kit"
)

// withPods skips a test where pods as volumes are not deployed.
func withPods() {
	GinkgoHelper()
	if !bed.Options().Pods {
		Skip("this bed has no pods as volumes: bring it up with --pods")
	}
}

// jobs are the shell commands of a provisioner's pods, by phase; an empty one is a pod that there
// is not.
type jobs struct{ validate, create, remove, stage, unstage string }

// provisioner makes a PavProvisioner of shell commands, and a StorageClass of its name; both go
// with the test.
func (ns *testNamespace) provisioner(ctx context.Context, name string, j jobs, change ...func(*pavv1alpha1.PavProvisioner)) string {
	GinkgoHelper()
	return ns.provisionerIn(ctx, clients.Host, name, j, change...)
}

// provisionerIn is provisioner in one of the clusters.
func (ns *testNamespace) provisionerIn(ctx context.Context, cluster client.Client, name string, j jobs, change ...func(*pavv1alpha1.PavProvisioner)) string {
	GinkgoHelper()
	name = ns.name + "-" + name
	p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s := &p.Spec
	s.ProvisioningModes = []pavv1alpha1.ProvisioningMode{pavv1alpha1.Dynamic}
	s.VolumeCreation = &pavv1alpha1.VolumeCreation{Capacity: asJSON("{{ requestedMinCapacity }}"), PodPhase: job(j.create)}
	if j.validate != "" {
		s.VolumeValidation = &pavv1alpha1.VolumeValidation{PodPhase: job(j.validate)}
	}
	if j.remove != "" {
		s.VolumeDeletion = ptr.To(job(j.remove))
	}
	s.VolumeStaging.PodTemplate = job(j.stage).PodTemplate
	if j.unstage != "" {
		s.VolumeUnstaging = ptr.To(job(j.unstage))
	}
	for _, f := range change {
		f(p)
	}
	Expect(cluster.Create(ctx, p)).To(Succeed())
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: name}
	Expect(cluster.Create(ctx, class)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(cluster.Delete(ctx, class))).To(Succeed())
		Expect(client.IgnoreNotFound(cluster.Delete(ctx, p))).To(Succeed())
	}, NodeTimeout(patience))
	Eventually(readyOf(cluster, name)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue())
	return name
}

func readyOf(cluster client.Client, name string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		p := &pavv1alpha1.PavProvisioner{}
		err := cluster.Get(ctx, client.ObjectKey{Name: name}, p)
		return meta.IsStatusConditionTrue(p.Status.Conditions, pavv1alpha1.ConditionReady), err
	}
}

// job is a pod that runs a command. It is in no namespace of the test's, which goes with the test.
func job(command string) pavv1alpha1.PodPhase {
	if command == "" {
		return pavv1alpha1.PodPhase{}
	}
	return pavv1alpha1.PodPhase{PodTemplate: asJSON(map[string]any{
		"spec": map[string]any{"terminationGracePeriodSeconds": 1, "containers": []any{map[string]any{
			"name": "job", "image": kit.Image, "command": []any{"sh", "-ec", command}, "securityContext": map[string]any{"privileged": true},
		}}},
	})}
}

func asJSON(v any) *apiextensionsv1.JSON {
	GinkgoHelper()
	raw, err := json.Marshal(v)
	Expect(err).NotTo(HaveOccurred())
	return &apiextensionsv1.JSON{Raw: raw}
}

// bound waits until the claim has a volume, and returns it.
func bound(ctx context.Context, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	GinkgoHelper()
	pv := &corev1.PersistentVolume{}
	Expect(clients.Host.Get(ctx, client.ObjectKey{Name: volumeOf(ctx, c)}, pv)).To(Succeed())
	return pv
}

// told waits until an event about an object has these words.
func (ns *testNamespace) told(ctx context.Context, name, words string) {
	GinkgoHelper()
	Eventually(eventsOf(ns.name, name)).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(ContainSubstring(words))
}

// killedAtEachStep kills the processes whenever a volume of a provisioner, or its staging, is at
// another step, until ended is called, which returns the phases that were seen.
func killedAtEachStep(ctx context.Context, provisioner string, processes ...string) (ended func() []string) {
	GinkgoHelper()
	watched, cancel := context.WithCancel(ctx)
	DeferCleanup(cancel)
	volumes, err := clients.Host.Watch(watched, &moorv1alpha1.PodVolumeList{})
	Expect(err).NotTo(HaveOccurred())
	stagings, err := clients.Host.Watch(watched, &moorv1alpha1.PodStagingList{})
	Expect(err).NotTo(HaveOccurred())
	seen := make(chan []string, 1)
	go func() {
		defer GinkgoRecover()
		var phases []string
		defer func() { seen <- phases }()
		for at := ""; ; {
			select {
			case <-watched.Done():
				return
			case <-volumes.ResultChan():
			case <-stagings.ResultChan():
			}
			now, phase := stepOf(watched, provisioner)
			if now == at || watched.Err() != nil { // what changed meanwhile was seen with what was before
				continue
			}
			at, phases = now, append(phases, phase...)
			for _, name := range processes {
				restart(ctx, name)
			}
		}
	}()
	return func() []string {
		cancel()
		return <-seen
	}
}

// stepOf is where the volumes of a provisioner stand, with all that a controller writes of it, and
// their phases.
func stepOf(ctx context.Context, provisioner string) (step string, phases []string) {
	var volumes moorv1alpha1.PodVolumeList
	var stagings moorv1alpha1.PodStagingList
	of := client.MatchingFields{index.PodVolumeByProvisioner: provisioner} // both kinds have the field
	if clients.Host.List(ctx, &volumes, of) != nil || clients.Host.List(ctx, &stagings, of) != nil {
		return "", nil
	}
	for i := range volumes.Items {
		s := &volumes.Items[i].Status
		step += fmt.Sprintln(volumes.Items[i].UID, s.Phase, s.Pod != nil, s.Report != nil)
		phases = append(phases, string(s.Phase))
	}
	for i := range stagings.Items {
		s := &stagings.Items[i].Status
		step += fmt.Sprintln(stagings.Items[i].UID, s.Phase, s.Pod != nil, s.Report != nil)
		phases = append(phases, string(s.Phase))
	}
	return step, phases
}

var _ = Describe("pods as volumes", func() {
	BeforeEach(withPods)

	It("greets a newcomer by the example as it stands", func(ctx context.Context) {
		ns := newNamespace(ctx)
		objects, err := kit.ReadManifests(filepath.Join(bed.Root(), "deploy", "examples", "pods", "greeting.yaml"))
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			if o.GetKind() == "PersistentVolumeClaim" || o.GetKind() == "Pod" {
				o.SetNamespace(ns.name)
			}
			DeferCleanup(remove, o, NodeTimeout(patience))
		}
		Expect(kit.ApplyObjects(ctx, clients.Host, objects)).To(Succeed())
		pod := client.ObjectKey{Namespace: ns.name, Name: "greeting"}
		runs(ctx, pod)
		Expect(sh(ctx, pod, "cat /greeting/greeting")).To(Equal("Good morning, greeting\n"))
		Expect(sh(ctx, pod, "(echo x >/greeting/x) 2>&1 || true")).To(ContainSubstring("Read-only file system"), "a volume that is read by many is written by none")
	})

	It("makes, stages, unstages and removes a volume by pods, and keeps what was written", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.provisioner(ctx, "whole", jobs{
			create:  "echo given-{{ pvc.metadata.name }} >/pav/handle; echo 3Mi >/pav/capacity",
			remove:  "true",
			stage:   "mkdir /pav/volume; mount -t tmpfs -o size=2m none /pav/volume; echo {{ handle | tobash }} >/pav/volume/name; touch /pav/ready; while true; do sleep 1; done",
			unstage: "true",
		})
		c := ns.claim(ctx, claim{name: "data", class: class, size: "1Mi"})
		pv := bound(ctx, c)
		Expect(pv.Spec.CSI.VolumeHandle).To(Equal("given-data"))
		Expect(pv.Spec.Capacity.Storage().String()).To(Equal("3Mi"))
		pod := ns.pod(ctx, "pod", "host-1", c)
		runs(ctx, pod)
		Expect(sh(ctx, pod, "cat /data-data/name; echo written >/data-data/x; cat /data-data/x")).To(Equal("given-data\nwritten\n"))
		Expect(sh(ctx, pod, "grep ' /data-data ' /proc/mounts")).To(ContainSubstring("tmpfs"))
		remove(ctx, podObject(pod))
		Eventually(func(ctx context.Context) (int, error) {
			var list moorv1alpha1.PodStagingList
			err := clients.Host.List(ctx, &list)
			return len(list.Items), err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeZero())
		remove(ctx, c)
		gone(ctx, pv)
	})

	It("tells the user of the claim why it cannot be met, in words", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.provisioner(ctx, "plain", jobs{stage: "mkdir /pav/volume"})
		block := ns.claim(ctx, claim{name: "block", class: class, mode: corev1.PersistentVolumeBlock})
		ns.told(ctx, block.Name, "supports volumeMode Filesystem, and Block is asked for")
		failing := ns.provisioner(ctx, "failing", jobs{create: "echo the cupboard is bare >/pav/error; exit 3", remove: "true", stage: "mkdir /pav/volume"})
		bare := ns.claim(ctx, claim{name: "bare", class: failing})
		ns.told(ctx, bare.Name, "the cupboard is bare")
		invalid := ns.provisioner(ctx, "invalid", jobs{validate: "echo not on a Sunday >/pav/error; false", stage: "mkdir /pav/volume"})
		sunday := ns.claim(ctx, claim{name: "sunday", class: invalid})
		ns.told(ctx, sunday.Name, "not on a Sunday")
		for _, c := range []*corev1.PersistentVolumeClaim{block, bare, sunday} {
			Expect(c.Status.Phase).NotTo(Equal(corev1.ClaimBound))
			remove(ctx, c)
		}
	})

	It("refuses a provisioner that is wrong when it is applied, with the paths of what is", func(ctx context.Context) {
		ns := newNamespace(ctx)
		p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: ns.name + "-wrong"}}
		p.Spec.ProvisioningModes = []pavv1alpha1.ProvisioningMode{pavv1alpha1.Dynamic}
		p.Spec.VolumeCreation = &pavv1alpha1.VolumeCreation{Capacity: asJSON("{{ requestedMinCapacity")}
		p.Spec.VolumeStaging.PodTemplate = asJSON(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "imagee": "x"}}}})
		err := clients.Host.Create(ctx, p)
		Expect(err).To(MatchError(And(ContainSubstring("spec.volumeCreation.capacity"), ContainSubstring(`unknown field "spec.containers[0].imagee"`))))
	})

	It("goes on after its controller and its node agents were killed, in whatever they did", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.provisioner(ctx, "slow", jobs{
			validate: "sleep 1", create: "sleep 1", remove: "sleep 1", stage: "sleep 1; mkdir /pav/volume; echo here >/pav/volume/x", unstage: "sleep 1",
		})
		ended := killedAtEachStep(ctx, class, "pod-provisioner", "pod-provisioner-host-1")
		c := ns.claim(ctx, claim{name: "data", class: class, size: "1Mi"})
		pod := ns.pod(ctx, "pod", "host-1", c)
		runs(ctx, pod)
		Expect(sh(ctx, pod, "cat /data-data/x")).To(Equal("here\n"))
		pv := bound(ctx, c)
		remove(ctx, podObject(pod))
		remove(ctx, c)
		gone(ctx, pv)
		Expect(ended()).To(And(ContainElement("Validating"), ContainElement("Creating"), ContainElement("Deleting"), ContainElement("Staging"), ContainElement("Unstaging")))
	})

	It("mounts several volumes in one pod, and one volume in several", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.provisioner(ctx, "named", jobs{stage: "mkdir /pav/volume; echo {{ pvc.metadata.name | tobash }} >/pav/volume/name"})
		var all []*corev1.PersistentVolumeClaim
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, ns.claim(ctx, claim{name: name, class: class, access: corev1.ReadWriteMany, size: "1Mi"}))
		}
		first, second := ns.pod(ctx, "first", "host-1", all...), ns.pod(ctx, "second", "host-2", all...)
		for _, pod := range []client.ObjectKey{first, second} {
			runs(ctx, pod)
			Expect(sh(ctx, pod, "cat /data-a/name /data-b/name /data-c/name")).To(Equal("a\nb\nc\n"))
		}
	})

	It("shows a block device of the right size, and refuses one of another", func(ctx context.Context) {
		ns := newNamespace(ctx)
		block := func(p *pavv1alpha1.PavProvisioner) {
			if p.Spec.VolumeValidation == nil {
				p.Spec.VolumeValidation = &pavv1alpha1.VolumeValidation{}
			}
			p.Spec.VolumeValidation.VolumeModes = asJSON([]string{"Block"})
		}
		loop := func(size string) jobs {
			return jobs{
				stage:   fmt.Sprintf("truncate -s %s /pav/backing; dev=$(losetup -f); losetup $dev /pav/backing; cp -a $dev /pav/volume", size),
				unstage: "[ ! -b /pav/volume ] || losetup -d /dev/loop$((0x$(stat -c %T /pav/volume)))",
			}
		}
		class := ns.provisioner(ctx, "loop", loop("4194304"), block)
		c := ns.claim(ctx, claim{name: "disk", class: class, mode: corev1.PersistentVolumeBlock, size: "4Mi"})
		pod := ns.pod(ctx, "pod", "host-1", c)
		runs(ctx, pod)
		Expect(strings.TrimSpace(sh(ctx, pod, "blockdev --getsize64 /dev/disk"))).To(Equal("4194304"))
		wrong := ns.provisioner(ctx, "short", loop("1048576"), block)
		other := ns.claim(ctx, claim{name: "short", class: wrong, mode: corev1.PersistentVolumeBlock, size: "4Mi"})
		waits := ns.pod(ctx, "waits", "host-1", other)
		ns.told(ctx, waits.Name, "1048576")
	})

	It("keeps a volume whose class says Retain", func(ctx context.Context) {
		ns := newNamespace(ctx)
		name := ns.provisioner(ctx, "kept", jobs{remove: "true", stage: "mkdir /pav/volume"})
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name + "-retain"}, Provisioner: name, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain)}
		Expect(clients.Host.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { _ = clients.Host.Delete(ctx, class) })
		c := ns.claim(ctx, claim{name: "kept", class: class.Name, size: "1Mi"})
		pv := bound(ctx, c)
		remove(ctx, c)
		Eventually(func(ctx context.Context) (corev1.PersistentVolumePhase, error) {
			err := clients.Host.Get(ctx, client.ObjectKeyFromObject(pv), pv)
			return pv.Status.Phase, err
		}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal(corev1.VolumeReleased))
		v := &moorv1alpha1.PodVolume{}
		Expect(clients.Host.Get(ctx, client.ObjectKey{Name: pv.Name}, v)).To(Succeed())
		Expect(v.DeletionTimestamp).To(BeNil(), "what is kept is removed by its admin alone")
		remove(ctx, pv)
		remove(ctx, v)
	})

	It("takes PaV's own first example as it stands", func(ctx context.Context) {
		ns := newNamespace(ctx)
		objects, err := kit.ReadManifests(filepath.Join(bed.Root(), "pkg", "provisioner", "pods", "testdata", "1-hello-world.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(kit.ApplyObjects(ctx, clients.Host, objects)).To(Succeed())
		name := objects[0].GetName()
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: name}
		Expect(clients.Host.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(clients.Host.Delete(ctx, class)).To(Succeed())
			Expect(clients.Host.Delete(ctx, objects[0])).To(Succeed())
		})
		c := ns.claim(ctx, claim{name: "data", class: class.Name, access: corev1.ReadOnlyMany, size: "1Gi"})
		pod := ns.pod(ctx, "pod", "", c)
		runs(ctx, pod)
		Expect(sh(ctx, pod, "cat /data-data/greeting")).To(Equal("Hello world!\n"))
	})

	It("heals a volume whose staging pod has died, and tells the pod that uses it", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.provisioner(ctx, "mortal", jobs{
			stage: "mkdir /pav/volume; mount -t tmpfs none /pav/volume; cat /proc/sys/kernel/random/uuid >/pav/volume/made; touch /pav/ready; while true; do sleep 1; done",
		})
		c := ns.claim(ctx, claim{name: "data", class: class, size: "1Mi"})
		pod := ns.pod(ctx, "pod", "host-1", c)
		runs(ctx, pod)
		first := sh(ctx, pod, "cat /data-data/made")
		var helpers corev1.PodList
		Expect(clients.Host.List(ctx, &helpers, client.HasLabels{moorv1alpha1.LabelPodStaging})).To(Succeed())
		Expect(helpers.Items).To(HaveLen(1))
		Expect(clients.Host.Delete(ctx, &helpers.Items[0], client.GracePeriodSeconds(0))).To(Succeed())
		ns.told(ctx, pod.Name, "staging pod")
		remove(ctx, podObject(pod))
		again := ns.pod(ctx, "again", "host-1", c)
		runs(ctx, again)
		Expect(sh(ctx, again, "cat /data-data/made")).NotTo(Equal(first))
	})

	It("keeps what could not be removed, says so, and tries it again by itself", func(ctx context.Context) {
		ns := newNamespace(ctx)
		class := ns.provisioner(ctx, "stubborn", jobs{create: "true", remove: "echo the drawer is locked >/pav/error; false", stage: "mkdir /pav/volume"})
		c := ns.claim(ctx, claim{name: "data", class: class, size: "1Mi"})
		pv := bound(ctx, c)
		remove(ctx, c)
		v := &moorv1alpha1.PodVolume{}
		phase := func(ctx context.Context) (string, error) {
			err := clients.Host.Get(ctx, client.ObjectKey{Name: pv.Name}, v)
			return string(v.Status.Phase) + ": " + v.Status.Message, err
		}
		Eventually(phase).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(And(HavePrefix("DeletionFailed"), ContainSubstring("the drawer is locked")))
		p := &pavv1alpha1.PavProvisioner{}
		Expect(clients.Host.Get(ctx, client.ObjectKey{Name: class}, p)).To(Succeed())
		mended := client.MergeFrom(p.DeepCopy()) // its status counts volumes meanwhile
		p.Spec.VolumeDeletion.PodTemplate = job("true").PodTemplate
		Expect(clients.Host.Patch(ctx, p, mended)).To(Succeed())
		gone(ctx, v)
		gone(ctx, pv)
	})
})
