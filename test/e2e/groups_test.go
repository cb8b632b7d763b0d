//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inTurn writes a number that grows to one volume and then to the other, and
// begins the next once both have acknowledged it, for as long as the pod lives.
const inTurn = `(i=0; while i=$((i+1)); do for d in /data-left /data-right; do
  printf %%08d $i | dd of=$d/number conv=notrunc,fsync 2>/dev/null || exit
done; done) >/dev/null 2>&1 &`

// number is what a pod reads of what inTurn has written to a volume.
func number(ctx context.Context, key client.ObjectKey, claim string) int {
	GinkgoHelper()
	n, err := strconv.Atoi(sh(ctx, key, "head -c 8 /data-%s/number", claim))
	Expect(err).NotTo(HaveOccurred())
	return n
}

// member marks a claim as one of a group.
func member(ctx context.Context, c *corev1.PersistentVolumeClaim, group string) {
	GinkgoHelper()
	before := c.DeepCopy()
	c.Labels = map[string]string{"group": group}
	Expect(clients.Host.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
}

// snapshotGroup makes a VolumeGroupSnapshot of the claims of a group, waits until it is
// ready, and returns it and the snapshots in it by their claims.
func (ns *testNamespace) snapshotGroup(ctx context.Context, name, group string) (*groupsnapshotv1beta2.VolumeGroupSnapshot, map[string]*corev1.TypedLocalObjectReference) {
	GinkgoHelper()
	o := &groupsnapshotv1beta2.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns.name}}
	o.Spec.VolumeGroupSnapshotClassName = ptr.To("snap")
	o.Spec.Source.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"group": group}}
	Expect(clients.Host.Create(ctx, o)).To(Succeed())
	Eventually(func(ctx context.Context) (bool, error) {
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.Status != nil && ptr.Deref(o.Status.ReadyToUse, false), err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeTrue(), "the group is ready")
	var list snapshotv1.VolumeSnapshotList
	Expect(clients.Host.List(ctx, &list, client.InNamespace(ns.name))).To(Succeed())
	out := map[string]*corev1.TypedLocalObjectReference{}
	for i := range list.Items {
		s := &list.Items[i]
		out[ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "")] = &corev1.TypedLocalObjectReference{
			APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: s.Name,
		}
	}
	return o, out
}

// refused lists the writes of snapshots, of all kinds, that the API servers have
// refused to an account since then: rights that deploy/ does not give.
func refused(since time.Time) ([]string, error) {
	var out []string
	for _, log := range []string{"host-audit", "dpu-audit"} {
		lines, err := os.ReadFile(bed.Log(log))
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(lines) {
			var e struct { // audit.k8s.io/v1 Event
				ObjectRef                struct{ Resource string }
				ResponseStatus           metav1.Status
				RequestReceivedTimestamp time.Time
			}
			if json.Unmarshal(line, &e) != nil {
				continue // the last line may not be whole yet
			}
			if e.ResponseStatus.Code == http.StatusForbidden && strings.Contains(e.ObjectRef.Resource, "snapshot") && e.RequestReceivedTimestamp.After(since) {
				out = append(out, e.ResponseStatus.Message)
			}
		}
	}
	return out, nil
}

var _ = Describe("snapshots of a group of volumes", func() {
	It("are of one instant, while a pod writes to one volume after the other, and go together", func(ctx context.Context) {
		ns, begin := newNamespace(ctx), time.Now()
		left, right, other := ns.claim(ctx, claim{name: "left"}), ns.claim(ctx, claim{name: "right"}), ns.claim(ctx, claim{name: "other"})
		member(ctx, left, "pair")
		member(ctx, right, "pair")
		writer := ns.pod(ctx, "writer", "host-1", left, right, other)
		runs(ctx, writer)
		sh(ctx, writer, "for d in left right; do echo of $d | dd of=/data-$d/text conv=fsync; printf 00000000 | dd of=/data-$d/number conv=fsync; done")
		sh(ctx, writer, inTurn)
		Eventually(func() int { return number(ctx, writer, "right") }).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">", 3))

		group, kept := ns.snapshotGroup(ctx, "kept", "pair")
		Expect(kept).To(HaveLen(2))
		Expect(kept).To(HaveKey("left"))
		Expect(kept).To(HaveKey("right"))
		taken := number(ctx, writer, "left")
		Eventually(func() int { return number(ctx, writer, "right") }).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeNumerically(">", taken), "it writes on")

		a, b := ns.claim(ctx, claim{name: "a", source: kept["left"]}), ns.claim(ctx, claim{name: "b", source: kept["right"]})
		reader := ns.pod(ctx, "reader", "host-2", a, b)
		runs(ctx, reader)
		Expect(sh(ctx, reader, "cat /data-a/text /data-b/text")).To(Equal("of left\nof right\n"))
		first, second := number(ctx, reader, "a"), number(ctx, reader, "b")
		GinkgoWriter.Printf("kept %d and %d, the writer was at %d after that\n", first, second, taken)
		Expect(first-second).To(BeElementOf(0, 1), "what the second volume holds was written before what the first one holds")
		Expect(first).To(And(BeNumerically(">", 3), BeNumerically("<=", taken)))

		remove(ctx, group)
		for _, s := range kept {
			gone(ctx, &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: ns.name}})
		}
		Expect(number(ctx, reader, "a")).To(Equal(first), "a restored volume is a volume of its own")
		Expect(refused(begin)).To(BeEmpty(), "every account has the rights that it uses")
	})
})
