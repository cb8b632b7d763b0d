//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/proof"
	"github.com/moor-storage/moor/test/runbook"
)

// Sections of docs/restore.md.
const (
	ofDPUCluster  = "The DPU cluster"
	ofHostCluster = "The host cluster"
	ofBoth        = "Both"
)

// deployments are the processes of the bed that run in a Deployment elsewhere. The sidecars
// beside local-vendor are not among them: without it they do nothing.
var deployments = map[string][]string{
	hostController:            {hostController},
	"snap-controller":         {"snap-controller"},
	"local-vendor-controller": {"snap-external-attacher", "local-vendor"},
}

// reader follows docs/restore.md: it runs the commands of a step as they stand there, with the
// real kubectl but for what is said to Deployments.
type reader struct {
	page runbook.Commands
	dir  string
}

// kubectl is what the reader calls: what the page says to a Deployment is written down.
const kubectl = `#!/bin/sh
case " $* " in
*" scale deployment "* | *" rollout status deployment "*) echo "$*" >>asked ;;
*) exec REAL "$@" ;;
esac
`

func newReader() *reader {
	GinkgoHelper()
	r := &reader{dir: GinkgoT().TempDir()}
	var err error
	r.page, err = runbook.Read(filepath.Join(bed.Root(), "docs", "restore.md"))
	Expect(err).NotTo(HaveOccurred())
	for _, cluster := range []string{devcluster.HostCluster, devcluster.DPUCluster} {
		Expect(os.Symlink(bed.Kubeconfig(cluster), filepath.Join(r.dir, cluster+".kubeconfig"))).To(Succeed())
	}
	script := strings.ReplaceAll(kubectl, "REAL", filepath.Join(bed.KubeBinDir(), "kubectl"))
	Expect(os.WriteFile(filepath.Join(r.dir, "kubectl"), []byte(script), 0o700)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		for _, processes := range deployments {
			start(ctx, processes...)
		}
	})
	return r
}

// does runs the commands of a step, and returns the lines that they print.
func (r *reader) does(ctx context.Context, section string, step int) []string {
	GinkgoHelper()
	script, err := r.page.Step(section, step)
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.Join(r.page[""], "")+script)
	cmd.Dir, cmd.Stderr = r.dir, GinkgoWriter
	cmd.Env = append(os.Environ(), "PATH="+r.dir+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	GinkgoWriter.Printf("%s, step %d:\n%s", section, step, out)
	Expect(err).NotTo(HaveOccurred(), "step %d of %q", step, section)
	r.scale(ctx)
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' })
}

// scale ends and starts the processes of the Deployments that a step has scaled.
func (r *reader) scale(ctx context.Context) {
	GinkgoHelper()
	file := filepath.Join(r.dir, "asked")
	asked, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Remove(file)).To(Succeed())
	for line := range strings.Lines(string(asked)) {
		words := strings.Fields(line)
		if slices.Contains(words, "rollout") {
			continue
		}
		for _, name := range words[slices.Index(words, "deployment")+1 : len(words)-1] {
			Expect(deployments).To(HaveKey(name))
			if words[len(words)-1] == "--replicas=0" {
				kill(deployments[name]...)
			} else {
				start(ctx, deployments[name]...)
			}
		}
	}
}

// until repeats a step until it prints nothing, as the page says.
func (r *reader) until(ctx context.Context, section string, step int) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) []string { return r.does(ctx, section, step) }).WithContext(ctx).
		WithTimeout(patience).WithPolling(10*tick).Should(BeEmpty(), "step %d of %q prints nothing any more", step, section)
}

// bystander is a volume with a pod that is there before the backup or after it, and not both.
type bystander struct {
	pod    client.ObjectKey
	claim  *corev1.PersistentVolumeClaim
	volume string
}

// bystander makes one on host-2.
func (ns *testNamespace) bystander(ctx context.Context, name string) bystander {
	GinkgoHelper()
	b := bystander{claim: ns.claim(ctx, claim{name: name})}
	b.pod = ns.pod(ctx, name, "host-2", b.claim)
	runs(ctx, b.pod)
	b.volume = volumeOf(ctx, b.claim)
	return b
}

// deleted has pod and claim deleted in the host cluster; what follows may wait for a later step.
func (b bystander) deleted(ctx context.Context) {
	GinkgoHelper()
	Expect(clients.Host.Delete(ctx, podObject(b.pod))).To(Succeed())
	Expect(clients.Host.Delete(ctx, b.claim.DeepCopy())).To(Succeed())
}

// drill has the volumes of a drill: what happens to them lies between the backup and the restore.
type drill struct {
	*reader
	ns *testNamespace
	// moves fails over to another host, stays is where it was. first is the pod of before.
	moves, stays *subject
	first        *corev1.Pod
	// goes is deleted, late is made, under an id of the vendor's.
	goes, late bystander
	lateID     string
}

// prepare makes what there is before the backup.
func prepare(ctx context.Context) *drill {
	GinkgoHelper()
	d := &drill{reader: newReader(), ns: faulty(ctx)}
	two := d.ns.subjects(ctx, "host-1", "host-3")
	d.moves, d.stays, d.first = two[0], two[1], two[0].pod
	d.goes = d.ns.bystander(ctx, "goes")
	return d
}

// live does what comes after the backup.
func (d *drill) live(ctx context.Context) {
	GinkgoHelper()
	remove(ctx, podObject(d.goes.pod))
	remove(ctx, d.goes.claim.DeepCopy())
	d.late = d.ns.bystander(ctx, "late")
	d.lateID = vendorVolume(ctx, d.late.volume)
	due := within(hostDead)
	powerOff(ctx, d.moves.host)
	d.moves.again(ctx, due)
	Expect(bed.PowerOn(ctx, d.moves.host)).To(Succeed())
	Eventually(unwell).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty())
}

// forgets removes at the vendor the volume that was made after the backup of the DPU cluster.
func (d *drill) forgets(ctx context.Context) {
	GinkgoHelper()
	vendor := vendorController()
	_, err := vendor.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: d.lateID, NodeId: dpuIn("host-2")})
	Expect(err).NotTo(HaveOccurred())
	_, err = vendor.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: d.lateID})
	Expect(err).NotTo(HaveOccurred())
}

// closes closes the volume at the vendor for the DPUs that no attachment of it names.
func (s *subject) closes(ctx context.Context) {
	GinkgoHelper()
	var list storagev1alpha1.VolumeAttachmentList
	Expect(clients.DPU.List(ctx, &list, client.InNamespace(kit.Namespace))).To(Succeed())
	named := map[string]bool{}
	for i := range list.Items {
		named[list.Items[i].Spec.NodeName] = named[list.Items[i].Spec.NodeName] || list.Items[i].VolumeName() == s.volume
	}
	for _, dpu := range bed.DPUs() {
		if named[dpu] {
			continue
		}
		_, err := vendorController().ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: vendorVolume(ctx, s.volume), NodeId: dpu})
		Expect(err).NotTo(HaveOccurred())
	}
}

// vendorController reaches the vendor's CSI controller past all objects.
func vendorController() csispec.ControllerClient {
	GinkgoHelper()
	socket := filepath.Join(layout.MachineDir(layout.Hub), "var-lib-moor", "vendor.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(conn.Close)
	return csispec.NewControllerClient(conn)
}

// backup reads clusters.
func backup(ctx context.Context, clusters ...string) []*devcluster.Backup {
	GinkgoHelper()
	var out []*devcluster.Backup
	for _, name := range clusters {
		b, err := bed.Backup(ctx, name)
		Expect(err).NotTo(HaveOccurred())
		out = append(out, b)
	}
	return out
}

// oneWriter expects that the medium took the writes of one DPU after the other, in the order
// in which the pods wrote there, and that nothing acknowledged is missing. What the claim said
// is no part of it: a restore takes that back.
func (s *subject) oneWriter(ctx context.Context) {
	GinkgoHelper()
	j := s.journal(ctx)
	var wrote []string
	for _, w := range s.writers {
		wrote = append(wrote, dpuIn(w.node))
	}
	recorded, err := kit.Recorded(ctx, bed, vendorVolume(ctx, s.volume))
	Expect(err).NotTo(HaveOccurred())
	wrote = slices.Compact(wrote)
	Expect(writersInOrder(recorded.Writes)).To(Equal(wrote), "who wrote to volume "+s.volume)
	for _, v := range proof.Check(proof.History{Volume: s.volume, Writes: recorded.Writes, Journals: []proof.Journal{j}}) {
		Expect(v.Rule).To(Equal(proof.RuleHeld), v.String())
	}
	GinkgoWriter.Printf("%s: %d lines acknowledged, none lost, by %v\n", s.key.Name, len(j.Acknowledged), wrote)
}

var _ = Describe("after a restore from a backup each volume is usable, had one writer and lost nothing, by the commands of the page", slow, func() {
	It("of the DPU cluster", func(ctx context.Context) {
		d := prepare(ctx)
		before := backup(ctx, devcluster.DPUCluster)
		d.live(ctx)

		Expect(d.does(ctx, ofDPUCluster, 1)).To(BeEmpty(), "no DPU is silent")
		d.does(ctx, ofDPUCluster, 2)
		By("restoring the DPU cluster, in which the DPUs may do nothing")
		Expect(bed.Restore(ctx, before[0].Without("rolebindings/"+kit.Namespace+"/snap-node-driver"))).To(Succeed())
		d.does(ctx, ofDPUCluster, 4)
		Expect(d.does(ctx, ofDPUCluster, 5)).To(ConsistOf(d.late.volume))
		d.late.deleted(ctx)
		d.does(ctx, ofDPUCluster, 6)
		d.does(ctx, ofDPUCluster, 7)
		d.until(ctx, ofDPUCluster, 8)
		d.does(ctx, ofDPUCluster, 9)
		Expect(d.does(ctx, ofDPUCluster, 10)).To(ConsistOf(d.goes.volume))
		d.does(ctx, ofDPUCluster, 11)
		d.until(ctx, ofDPUCluster, 12)
		broken := d.does(ctx, ofDPUCluster, 13)
		Expect(broken).To(ContainElement(d.ns.name + "/data-" + d.moves.key.Name))
		due := within(patience)
		Expect(clients.Host.Delete(ctx, podObject(d.moves.key))).To(Succeed())
		d.moves.again(ctx, due)
		d.stays.stays(ctx)
		d.moves.oneWriter(ctx)
		d.stays.oneWriter(ctx)
		d.forgets(ctx)
	})

	It("of the host cluster", func(ctx context.Context) {
		d := prepare(ctx)
		before := backup(ctx, devcluster.HostCluster)
		d.live(ctx)

		d.does(ctx, ofHostCluster, 1)
		By("restoring the host cluster")
		Expect(bed.Restore(ctx, before...)).To(Succeed())
		d.does(ctx, ofHostCluster, 1)
		d.does(ctx, ofHostCluster, 3)
		Expect(d.does(ctx, ofHostCluster, 4)).To(ConsistOf(d.goes.volume, d.late.volume))
		d.goes.deleted(ctx)
		Expect(d.does(ctx, ofHostCluster, 5)).To(ConsistOf(d.moves.volume))
		d.does(ctx, ofDPUCluster, 6)
		d.does(ctx, ofDPUCluster, 7)
		Expect(d.does(ctx, ofHostCluster, 8)).NotTo(BeEmpty())
		d.moves.pod = d.first
		d.moves.restarted(ctx)
		d.stays.stays(ctx)
		d.moves.oneWriter(ctx)
		d.stays.oneWriter(ctx)
		By("deleting the Volume that has no DPUVolume")
		Expect(clients.DPU.Delete(ctx, &storagev1alpha1.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: d.late.volume}})).To(Succeed())
	})

	It("of both clusters", func(ctx context.Context) {
		d := prepare(ctx)
		before := backup(ctx, devcluster.HostCluster, devcluster.DPUCluster)
		d.live(ctx)

		powerOff(ctx, append(bed.Nodes(), bed.DPUs()...)...)
		By("restoring both clusters")
		Expect(bed.Restore(ctx, before...)).To(Succeed())
		d.does(ctx, ofBoth, 3)
		d.does(ctx, ofBoth, 4)
		Expect(d.does(ctx, ofDPUCluster, 5)).To(BeEmpty())
		d.goes.deleted(ctx)
		d.does(ctx, ofDPUCluster, 6)
		d.does(ctx, ofDPUCluster, 7)
		d.until(ctx, ofDPUCluster, 8)
		d.does(ctx, ofBoth, 6)
		d.does(ctx, ofBoth, 7)
		for _, machine := range append(bed.DPUs(), bed.Nodes()...) {
			Expect(bed.PowerOn(ctx, machine)).To(Succeed())
		}
		Expect(d.does(ctx, ofDPUCluster, 10)).To(BeEmpty())
		d.until(ctx, ofDPUCluster, 12)
		d.moves.pod = d.first
		d.moves.restarted(ctx)
		d.stays.restarted(ctx)
		d.moves.oneWriter(ctx)
		d.stays.oneWriter(ctx)
		d.moves.closes(ctx)
		d.stays.closes(ctx)
		d.forgets(ctx)
	})
})
