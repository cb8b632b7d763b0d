package dpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
)

// TestForgotten: the journal tells of an epoch that a restored attachment does not know: of one without a
// device, and of one with a device of an earlier epoch. What was granted nothing has forgotten nothing.
func TestForgotten(t *testing.T) {
	_, m, _ := shownUnderSeven(t)
	for _, tc := range []struct {
		volume, device string
		epoch, want    int64
	}{
		{"v1", "d", 7, 0}, {"v1", "d", 8, 0}, {"v1", "d", 6, 7}, {"v1", "", 7, 7}, {"v1", "", 3, 7}, {"v1", "", 0, 0}, {"v1", "d", 0, 0}, {"v2", "", 7, 0},
	} {
		a := &storagev1alpha1.VolumeAttachment{}
		a.Spec.Epoch, a.Spec.Source.VolumeRef = tc.epoch, &storagev1alpha1.ObjectRef{Name: tc.volume}
		if got := m.fence.forgotten(a, tc.device); got != tc.want {
			t.Errorf("%+v: got %d", tc, got)
		}
	}
}

// forget has nothing stand on record of the attachment's device.
func (c *cluster) forget(name string) {
	c.t.Helper()
	c.must(c.setDPU(name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }))
}

// TestForgottenFirstEpoch: the first epoch of a volume counts like each other one, whether the attachment goes or
// the volume is fenced: what was sent under it is waited for.
func TestForgottenFirstEpoch(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			c.forget(a.Name)
			take(c, c.get(a.Name))
			c.must(m.pass(a.Name))
			if now := c.get(a.Name); now == nil || now.Status.DPU.RetiredEpoch != 0 || len(m.shown()) != 0 {
				t.Fatalf("got %+v, %v", now, m.shown())
			}
			m.clock.Step(drainTime)
			c.must(m.pass(a.Name))
			m.given(a.Name)
			if len(m.fence.journal.Standing()) != 0 {
				t.Errorf("standing are %v", m.fence.journal.Standing())
			}
		})
	}
}

// TestForgottenAmongOthers: neither a later attachment of another volume, nor an earlier one of the same, has the
// device that was forgotten.
func TestForgottenAmongOthers(t *testing.T) {
	c, m, a := shownUnderSeven(t)
	c.volume("v2", corev1.ReadWriteOnce)
	c.grant(c.attachment("v2", "dpu-1"), 9)
	m.settle("dpu-1-v2")
	earlier := c.get(a.Name)
	earlier.Name, earlier.ResourceVersion, earlier.UID, earlier.Spec.Epoch = "earlier", "", "earlier", 6
	c.must(c.Create(t.Context(), earlier))
	c.forget("earlier")
	c.forget(a.Name)
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	c.must(m.pass(a.Name))
	if s := m.shown(); s["dev_v1-pvc"].Visible || !s["dev_v2-pvc"].Visible {
		t.Errorf("shown %v", s)
	}
	if now := c.get(a.Name); now == nil || now.Status.DPU.RetiredEpoch != 0 {
		t.Errorf("what was sent is not waited for: %+v", now)
	}
}

// unlistedOnce has the first list of attachments not answered.
type unlistedOnce struct {
	client.Reader
	asked bool
}

func (u *unlistedOnce) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if !u.asked {
		u.asked = true
		return errNoAnswer
	}
	return u.Reader.List(ctx, list, opts...)
}

// TestForgottenNeedsAllAnswers: what was forgotten is not given back while the API server does not say whose the
// devices are, or SNAP does not take them away.
func TestForgottenNeedsAllAnswers(t *testing.T) {
	for fault, inject := range map[string]func(*machine){
		"no list of attachments": func(m *machine) { m.o.Attachments.DPU.Live = unlisted{m.c.driver()} },
		"SNAP does not withdraw": (*machine).refuse,
		"SNAP does not list": func(m *machine) {
			m.inject(map[string]any{"method": "nvme_subsystem_list", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
		},
	} {
		for name, take := range ways {
			t.Run(fault+", "+name, func(t *testing.T) {
				c, m, a := attached(t)
				c.forget(a.Name)
				take(c, c.get(a.Name))
				inject(m)
				for range 3 {
					if err := m.pass(a.Name); err == nil || waits(err) {
						t.Errorf("it says %v", err)
					}
					m.clock.Step(drainTime)
				}
				if now := c.get(a.Name); now == nil || now.Status.DPU.RetiredEpoch != 0 || len(now.Finalizers) == 0 {
					t.Errorf("given back: %+v", now)
				}
				m.clear()
			})
		}
	}
}

// TestClearsUpByAllServices: without a SNAP service that has a socket the DPU does not say that it shows nothing,
// and what a service says for itself is told.
func TestClearsUpByAllServices(t *testing.T) {
	t.Run("none has a socket", func(t *testing.T) {
		c, m, a := revokedAnew(t)
		c.forget("dpu-1-v2") // so that no service is on record
		m.unlink()
		m.restartDriver()
		if err := m.pass(a); !errors.Is(err, provisioner.ErrUnavailable) || c.get(a).Status.DPU.RetiredEpoch != 0 {
			t.Errorf("says that it has cleared up: %v, %+v", err, c.get(a).Status)
		}
	})
	t.Run("one refuses", func(t *testing.T) {
		_, m, a := revokedAnew(t)
		m.inject(map[string]any{"method": "nvme_subsystem_list", "count": -1, "error": map[string]any{"code": -5, "message": "because of the moon"}})
		if err := m.pass(a); err == nil || !strings.Contains(err.Error(), "because of the moon") || !strings.Contains(err.Error(), "whether it still shows it cannot be told") {
			t.Errorf("it says %v", err)
		}
	})
}

// TestClearsUpByTheServer: without the list of the attachments nothing is taken for another's, so nothing is taken
// away, and the DPU does not say that it has cleared up.
func TestClearsUpByTheServer(t *testing.T) {
	c, m, a := revokedAnew(t)
	m.o.Attachments.DPU.Live = unlisted{m.c.driver()}
	if err := m.pass(a); !errors.Is(err, errNoAnswer) || c.get(a).Status.DPU.RetiredEpoch != 0 {
		t.Errorf("says that it has cleared up: %v, %+v", err, c.get(a).Status)
	}
	if s := m.shown(); !s["dev_v1-pvc"].Visible || !s["dev_v2-pvc"].Visible {
		t.Errorf("shown %v", s)
	}
}

// TestClearsUpAll: one pass takes away all that is not known to be another volume's, and not the first of it alone.
func TestClearsUpAll(t *testing.T) {
	c, m, a := revokedAnew(t)
	c.must(m.rpc.NvmeSubsystemCreate(t.Context(), snap.NQN("half-made")))
	c.must(m.pass(a))
	if s := m.shown(); len(s) != 1 || !s["dev_v2-pvc"].Visible || c.get(a).Status.DPU.RetiredEpoch != 1 {
		t.Errorf("shown %v, and it says %+v", s, c.get(a).Status.DPU)
	}
}

// TestOfOthers: a device is another volume's by the record of its attachment, or by a plugin that lists it; the
// record counts more. An attachment that has none on record says nothing.
func TestOfOthers(t *testing.T) {
	c, m, a := attached(t)
	c.volume("v2", corev1.ReadWriteOnce)
	c.grant(c.attachment("v2", "dpu-1"), 1)
	m.settle("dpu-1-v2")
	c.attachment("v3", "dpu-1")
	for name, tc := range map[string]struct {
		change func()
		want   map[string]bool
	}{
		"by both":       {func() {}, map[string]bool{"dev_v1-pvc": false, "dev_v2-pvc": true}},
		"by the record": {func() { m.vendor.fail["ListDevices"] = provisioner.ErrUnavailable }, map[string]bool{"dev_v1-pvc": false, "dev_v2-pvc": true}},
	} {
		tc.change()
		wantOthers(t, name, m, c.passOver(a.Name), tc.want)
	}
	c.forget(a.Name)
	c.forget("dpu-1-v2")
	wantOthers(t, "by the plugin", m, c.passOver(a.Name), map[string]bool{"dev_v2-pvc": true})
}

func wantOthers(t *testing.T, name string, m *machine, p *pass, want map[string]bool) {
	t.Helper()
	got, err := m.fence.ofOthers(t.Context(), p)
	byNQN := map[string]bool{}
	for device, others := range want {
		byNQN[snap.NQN(device)] = others
	}
	if diff := cmp.Diff(byNQN, got); diff != "" || err != nil {
		t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
	}
}

// TestAwaited: a claim that was lost waits for the word of this DPU about an attachment that it never touched, until
// it has cleared up under that epoch. What the cache cannot tell is not waited for.
func TestAwaited(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	want := func(name string, want bool) {
		t.Helper()
		if got := m.fence.awaited(t.Context(), a); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	want("there is no claim", false)
	c.grant(a, 1)
	want("it is granted", false)
	c.lose(a, 1)
	want("it is lost", true)
	a.Status.DPU.ClearedEpoch = 1
	want("it is lost, and cleared up", false)
	a.Status.DPU.ClearedEpoch = 0
	m.o.Attachments.DPU.Client = unread{c.driver()}
	want("the cache does not answer", false)
}

// unread has no claim answered.
type unread struct{ client.Client }

func (u unread) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, claim := o.(*moorv1alpha1.WriterClaim); claim {
		return errNoAnswer
	}
	return u.Client.Get(ctx, key, o, opts...)
}

// TestVendorOfTheVolume: the device of a volume is removed by its own vendor, and by no other that is there.
func TestVendorOfTheVolume(t *testing.T) {
	c, m, a := attached(t)
	other := filepath.Join(m.dir, "p", "another")
	c.must(os.MkdirAll(other, 0o755))
	c.must(os.WriteFile(filepath.Join(other, "dpu.sock"), nil, 0o600))
	c.must(os.Remove(m.pluginSocket()))
	c.must(c.Delete(t.Context(), a))
	if err := m.pass(a.Name); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "vendor plugin local") {
		t.Errorf("it says %v", err)
	}
	if now := c.get(a.Name); now == nil || len(m.bdevs()) != 1 {
		t.Errorf("gone, and left are %v", m.bdevs())
	}
}
