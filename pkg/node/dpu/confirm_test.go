package dpu

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestConfirmIsOfTheServer: whatever of these the API server says otherwise than the cache, the pass ends
// before anything is shown.
func TestConfirmIsOfTheServer(t *testing.T) {
	for name, change := range map[string]func(*storagev1alpha1.VolumeAttachment){
		"nothing":       func(*storagev1alpha1.VolumeAttachment) {},
		"the service":   func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Provider = "other" },
		"what is kept":  func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.KeptEpoch = ptr.To(int64(1)) },
		"the device":    func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.DeviceName = "other" },
		"what is over":  func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 1 },
		"the finalizer": func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil },
		"the epoch":     func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 2 },
		"the role":      func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica },
		"the object":    func(a *storagev1alpha1.VolumeAttachment) { a.UID = "another" },
		"that it is":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			p := c.passOver(a.Name)
			now := c.get(a.Name)
			now.Finalizers = nil
			c.must(c.Update(t.Context(), now))
			c.must(c.Delete(t.Context(), now))
			if change != nil {
				now = a.DeepCopy()
				change(now)
				status := now.Status
				now.ResourceVersion = ""
				c.must(c.Create(t.Context(), now))
				now.Status = status
				c.must(c.Status().Update(t.Context(), now))
			}
			stands := name == "nothing"
			if err := m.right.confirm(t.Context(), p); waits(err) == stands || stands && (err != nil || p.refused != "") {
				t.Errorf("confirmed: %v, refused by %q", err, p.refused)
			}
			err := m.right.stillHeld(t.Context(), p)
			if stands != (err == nil) || err != nil && (!errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), "has changed meanwhile")) {
				t.Errorf("still held: %v", err)
			}
		})
	}
}

// TestConfirmNeedsAnAnswer: without the API server's word of the attachment, and of the claim, nothing is
// shown or resumed, and nothing that is shown is withdrawn.
func TestConfirmNeedsAnAnswer(t *testing.T) {
	for name, silent := range map[string]client.Object{"attachment": &storagev1alpha1.VolumeAttachment{}, "claim": &moorv1alpha1.WriterClaim{}} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			p := c.passOver(a.Name)
			m.reading().silent = silent
			for what, ask := range map[string]func(context.Context, *pass) error{"confirmed": m.right.confirm, "still held": m.right.stillHeld} {
				if err := ask(t.Context(), p); !errors.Is(err, errNoAnswer) || !errors.Is(err, provisioner.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := m.pass(a.Name); !errors.Is(err, errNoAnswer) || !m.shown()["dev_v1-pvc"].Visible || !c.get(a.Name).Status.DPU.Attached {
				t.Errorf("withdrawn for want of an answer: %v, %v", err, m.shown())
			}
		})
	}
}

// TestStillHeld: what waits in a function is not resumed under a right that is over. Of what is not shown,
// or has several writers, no claim is asked for.
func TestStillHeld(t *testing.T) {
	for name, end := range map[string]func(*cluster, *machine){
		"the claim is another's": func(c *cluster, _ *machine) { c.elsewhere() },
		"the journal retired it": func(c *cluster, m *machine) { c.must(m.o.Journal.Retire("uid-of-v1", "v1", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			p := c.passOver(a.Name)
			c.must(m.right.stillHeld(t.Context(), p))
			end(c, m)
			if err := m.right.stillHeld(t.Context(), p); !errors.Is(err, provisioner.ErrPrecondition) {
				t.Errorf("still held: %v", err)
			}
		})
	}
	for name, tc := range map[string]struct {
		mode corev1.PersistentVolumeAccessMode
		role storagev1alpha1.Role
	}{
		"a replica, which is not shown": {corev1.ReadWriteOnce, storagev1alpha1.RoleReplica},
		"one of several writers":        {corev1.ReadWriteMany, storagev1alpha1.RolePrimary},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			c.volume("v1", tc.mode)
			a := c.attachment("v1", "dpu-1")
			c.role(a.Name, tc.role)
			m.settle(a.Name)
			p := c.passOver(a.Name)
			if p.replica() {
				p.refused = "a replica"
			}
			m.reading().silent = &moorv1alpha1.WriterClaim{}
			c.must(m.right.stillHeld(t.Context(), p))
		})
	}
}

// TestRecovers: the host goes on where it was only if what the function may have kept is of the very epoch
// of the attachment, and the journal says that the volume was shown here under it last.
func TestRecovers(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    corev1.PersistentVolumeAccessMode
		journal int64 // the epoch under which it was shown last
		change  func(*pass)
		want    bool
	}{
		"it was shown under this epoch":      {journal: 3, change: func(*pass) {}, want: true},
		"nothing is kept":                    {journal: 3, change: func(p *pass) { p.dpu.KeptEpoch = nil }},
		"it is of an earlier epoch":          {journal: 3, change: func(p *pass) { p.dpu.KeptEpoch = ptr.To(int64(2)) }},
		"no function is on record":           {journal: 3, change: func(p *pass) { p.dpu.PCIDeviceAddress = "" }},
		"the journal has an earlier one":     {journal: 2, change: func(*pass) {}},
		"several writers have no epoch":      {mode: corev1.ReadWriteMany, change: func(p *pass) { p.attachment.Spec.Epoch, p.dpu.KeptEpoch = 0, new(int64) }, want: true},
		"of several writers, of an epoch":    {mode: corev1.ReadWriteMany, change: func(p *pass) { p.attachment.Spec.Epoch = 0 }},
		"a replica is not shown":             {change: func(p *pass) { p.attachment.Spec.Role, p.refused = storagev1alpha1.RoleReplica, "a replica" }, want: true},
		"a replica that may be shown":        {change: func(p *pass) { p.attachment.Spec.Role = storagev1alpha1.RoleReplica }},
		"a right that is refused is no such": {change: func(p *pass) { p.refused = "another holds it" }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			if tc.mode == "" {
				tc.mode = corev1.ReadWriteOnce
			}
			v := c.volume("v1", tc.mode)
			a := c.attachment("v1", "dpu-1")
			a.Spec.Epoch = 3
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{KeptEpoch: ptr.To(int64(3)), PCIDeviceAddress: "3b:00.2"}
			if tc.journal > 0 {
				c.must(m.o.Journal.Show(v.UID, v.Name, tc.journal))
			}
			p := newPass(a)
			p.volume = v
			tc.change(p)
			if got := m.right.recovers(p); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestFenceIsAskedForLast: that the storage refuses all earlier epochs gives no right that the claim does
// not; and what a replica of several writers shows has no epoch for which the storage could be asked.
func TestFenceIsAskedForLast(t *testing.T) {
	t.Run("the claim is another's", func(t *testing.T) {
		c, m, a := epochal(t, corev1.ReadWriteOnce)
		c.grant(a, 3)
		m.settle(a.Name)
		c.fenced(a.Name, 3)
		p := c.passOver(a.Name)
		if p.dpu.OpenEpoch == nil || p.dpu.Attached {
			t.Fatalf("not the order that is meant: %+v", p.dpu)
		}
		c.elsewhere()
		if err := m.right.confirm(t.Context(), p); err != nil || !strings.Contains(p.refused, "dpu-2 holds it") {
			t.Errorf("%v, refused by %q", err, p.refused)
		}
	})
	t.Run("a replica that is shown", func(t *testing.T) {
		c, m, a := epochal(t, corev1.ReadWriteMany)
		a = c.get(a.Name)
		a.Spec.Role, a.Spec.Warmth = storagev1alpha1.RoleReplica, storagev1alpha1.WarmthAttached
		c.must(c.Update(t.Context(), a))
		m.settle(a.Name)
		c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.OpenEpoch = new(int64) }))
		p := c.passOver(a.Name)
		p.withdrawn()
		if err := m.right.confirm(t.Context(), p); err != nil || p.refused != "" {
			t.Errorf("%v, refused by %q", err, p.refused)
		}
	})
}

// TestConfirmFailsToWithdraw: a right that was lost in the middle of the pass, and a device that could not be
// taken away, is a failure, and no wait.
func TestConfirmFailsToWithdraw(t *testing.T) {
	c, m, a := attached(t)
	p := c.passOver(a.Name)
	c.elsewhere()
	m.refuse()
	if err := m.right.confirm(t.Context(), p); err == nil || waits(err) || !strings.Contains(err.Error(), "could not be taken away from the host") {
		t.Errorf("it says %v", err)
	}
}
