package vendor

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

func TestContract(t *testing.T) {
	for _, mode := range []provisioner.VolumeMode{provisioner.Block, provisioner.Filesystem} {
		t.Run(string(mode), func(t *testing.T) {
			provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
				m := newMachine(t)
				return provisionertest.HostUnderTest{
					Host:    m,
					Prepare: func(_ *testing.T, name string) provisioner.OpenSpec { return m.volume(name, mode) },
					Restart: func(*testing.T) provisioner.Host { m.restart(); return m.Host },
				}
			})
		})
	}
}

// A name that is longer is made, and never shown.
func TestNamesAreShort(t *testing.T) {
	for _, volume := range []string{"", "a", strings.Repeat("v", 253)} {
		for _, name := range namesOf(volume) {
			if len(name) > 17 {
				t.Errorf("%q has %d bytes", name, len(name))
			}
		}
	}
}

func (m *machine) open(spec provisioner.OpenSpec) provisioner.Device {
	m.t.Helper()
	d, err := m.Open(m.t.Context(), spec)
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

// TestStagedFor: what is asked of the controller, and what SNAP is told.
func TestStagedFor(t *testing.T) {
	m := newMachine(t)
	spec := m.volume("a", provisioner.Block)
	spec.AccessModes = []provisioner.AccessMode{provisioner.ReadOnlyMany}
	d := m.open(spec)
	attachment := spec.PublishContext[storagev1alpha1.PublishContextAttachment]
	want := moorv1alpha1.PodStagingSpec{
		ProvisionerName: "crypt", VolumeName: "pv-a", NodeName: dpu, ReadOnly: true,
		User: moorv1alpha1.StagingUser{Kind: moorv1alpha1.AttachmentUser, Namespace: namespace, Name: attachment, UID: m.stagings()[0].Spec.User.UID},
	}
	if diff := cmp.Diff(want, m.stagings()[0].Spec); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	shown := m.shown[m.target(d.Name)]
	if diff := cmp.Diff(snaprpc.AIOSpec{Name: d.Name, Filename: m.target(d.Name), ReadOnly: true}, m.bdevs[d.Name]); diff != "" || !shown.ReadOnly || shown.Mode != corev1.PersistentVolumeBlock {
		t.Errorf("shown is %+v, and to SNAP (-want +got):\n%s", shown, diff)
	}
	if err := m.Close(t.Context(), spec.VolumeID, d.Name); err != nil {
		t.Fatal(err)
	}
	m.bare()
}

// TestDies: a device whose staging pod has died is not there any more, and the next Open makes it of what
// is staged again.
func TestDies(t *testing.T) {
	m := newMachine(t)
	spec := m.volume("a", provisioner.Filesystem)
	m.open(spec)
	p := m.stagings()[0]
	m.staged(&p, moorv1alpha1.PodStagingBroken)
	_, err := m.Lookup(t.Context(), spec.VolumeID)
	m.wants(err, provisioner.ErrNotFound, "a-pvc")
	if all, err := m.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("a device that is to be closed is not listed: %v, %v", all, err)
	}
	_, err = m.Open(t.Context(), spec)
	m.wants(err, provisioner.ErrUnavailable, "it is not staged yet: words of Broken")
	m.staged(&p, moorv1alpha1.PodStagingStaged)
	_, err = m.Lookup(t.Context(), spec.VolumeID)
	m.wants(err, provisioner.ErrNotFound, "a-pvc") // the device is still that of the dead pod
	m.open(spec)
	if got, err := m.Lookup(t.Context(), spec.VolumeID); err != nil || m.fsdevs[got.Name] != m.target(got.Name) {
		t.Errorf("%+v, %v, SNAP has %v", got, err, m.fsdevs)
	}
}

// TestReplaced: while the host sees the block device of a dead staging pod, another is made beside it, by the
// volume's other name; the old one goes once the host does not see it any more, and not before.
func TestReplaced(t *testing.T) {
	m := newMachine(t)
	spec := m.volume("a", provisioner.Block)
	seen := m.open(spec)
	for range 3 {
		m.claimed = seen.Name
		p := m.stagings()[0]
		m.staged(&p, moorv1alpha1.PodStagingStaged) // by another pod
		_, err := m.Lookup(t.Context(), spec.VolumeID)
		m.wants(err, provisioner.ErrNotFound, "a-pvc")
		again := m.open(spec)
		if again.Name == seen.Name {
			t.Fatal("the device that the host sees was made anew")
		}
		m.staged(&p, moorv1alpha1.PodStagingStaged) // and by yet another, before the host saw that
		if got := m.open(spec); got != again {
			t.Errorf("%+v, want %+v", got, again)
		}
		m.swept(2)
		m.claimed = again.Name
		m.swept(1)
		seen = again
	}
	if err := m.Close(t.Context(), spec.VolumeID, seen.Name); err != nil && !errors.Is(err, provisioner.ErrInUse) {
		t.Fatal(err)
	}
	m.claimed = ""
	if err := m.Close(t.Context(), spec.VolumeID, seen.Name); err != nil {
		t.Fatal(err)
	}
	m.bare()
}

// TestSeenFileSystemStays: a file system that the host sees has a tag that pods are told once, so it is
// replaced by none of another name.
func TestSeenFileSystemStays(t *testing.T) {
	m := newMachine(t)
	spec := m.volume("a", provisioner.Filesystem)
	m.claimed = m.open(spec).Name
	p := m.stagings()[0]
	m.staged(&p, moorv1alpha1.PodStagingStaged) // by another pod
	_, err := m.Open(t.Context(), spec)
	m.wants(err, provisioner.ErrUnavailable, "Device or resource busy")
	m.swept(1)
	seen := m.claimed
	m.claimed = ""
	if d := m.open(spec); d.Name != seen {
		t.Errorf("it is %s now, and was %s", d.Name, seen)
	}
	m.swept(1)
}

// swept fails unless SNAP has so many devices after a sweep, each over a place of its own.
func (m *machine) swept(want int) {
	m.t.Helper()
	if err := m.Sweep(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	if got := len(m.bdevs) + len(m.fsdevs); got != want || len(m.shown) != want {
		m.t.Errorf("%d devices, want %d: %v %v, shown %v", got, want, m.bdevs, m.fsdevs, m.shown)
	}
}

// TestNotReplaced: while SNAP keeps all devices of a volume, none passes for that of the next staging pod.
func TestNotReplaced(t *testing.T) {
	m := newMachine(t)
	spec := m.volume("a", provisioner.Block)
	m.open(spec)
	p := m.stagings()[0]
	m.staged(&p, moorv1alpha1.PodStagingStaged) // by another pod
	m.silent = true
	_, err := m.Open(t.Context(), spec)
	m.wants(err, provisioner.ErrUnavailable, "snap service unavailable")
	m.silent = false
	_, err = m.Lookup(t.Context(), spec.VolumeID)
	m.wants(err, provisioner.ErrNotFound, "a-pvc")
	d := m.open(spec)
	if got, err := m.Lookup(t.Context(), spec.VolumeID); err != nil || got != d {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAttachedAnew: what was staged for an attachment that is gone is not used for another.
func TestAttachedAnew(t *testing.T) {
	m := newMachine(t)
	m.open(m.volume("a", provisioner.Block))
	before := m.stagings()[0]
	m.open(m.attach("a", provisioner.Block))
	after := m.stagings()
	if len(after) != 1 || after[0].Spec.User.UID == before.Spec.User.UID {
		t.Errorf("staged are %+v", after)
	}
}

// TestRefused: what cannot be opened is said in words, and leaves nothing if that is certain.
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*machine, *provisioner.OpenSpec)
		kind   error
		words  string
		left   bool
	}{
		"no such claim": {func(_ *machine, s *provisioner.OpenSpec) { s.VolumeID = "b-pvc" }, provisioner.ErrPrecondition, "claim moor/b-pvc is not there", false},
		"a claim that is not bound": {func(m *machine, s *provisioner.OpenSpec) {
			s.VolumeID = "b-pvc"
			m.add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b-pvc"}})
		}, provisioner.ErrPrecondition, "or not bound to a volume of a CSI driver", false},
		"another mode":  {func(_ *machine, s *provisioner.OpenSpec) { s.Mode = provisioner.Filesystem }, provisioner.ErrPrecondition, "is of mode Block, and Filesystem is asked for", false},
		"no attachment": {func(_ *machine, s *provisioner.OpenSpec) { s.PublishContext = nil }, provisioner.ErrPrecondition, "nv-volumeAttachmentName", false},
		"an attachment of before": {func(_ *machine, s *provisioner.OpenSpec) {
			s.PublishContext = map[string]string{storagev1alpha1.PublishContextAttachment: "gone"}
		}, provisioner.ErrPrecondition, `VolumeAttachment "gone"`, false},
		"the staging fails":      {func(m *machine, _ *provisioner.OpenSpec) { m.stages = moorv1alpha1.PodStagingFailed }, nil, "the staging failed: words of Failed", false},
		"the staging takes long": {func(m *machine, _ *provisioner.OpenSpec) { m.stages = moorv1alpha1.PodStagingStaging }, provisioner.ErrUnavailable, "it is not staged yet: words of Staging", true},
		"no controller":          {func(m *machine, _ *provisioner.OpenSpec) { m.stages = "" }, provisioner.ErrUnavailable, "does pod-provisioner --mode=controller run?", true},
		"it cannot be shown":     {func(m *machine, _ *provisioner.OpenSpec) { m.fails = provisioner.ErrPrecondition }, provisioner.ErrUnavailable, "", true},
		"SNAP refuses": {func(m *machine, _ *provisioner.OpenSpec) {
			m.refuses = &snaprpc.Error{Code: -22, Message: "Invalid parameters"}
		}, provisioner.ErrInvalid, "Invalid parameters", false},
		"SNAP does not answer":        {func(m *machine, _ *provisioner.OpenSpec) { m.silent = true }, provisioner.ErrUnavailable, "", true},
		"the disk of records is full": {func(m *machine, _ *provisioner.OpenSpec) { m.records.Dir = "/dev/null/records" }, nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			spec := m.volume("a", provisioner.Block)
			tt.change(m, &spec)
			_, err := m.Open(t.Context(), spec)
			if tt.kind == nil {
				tt.kind = err // any
			}
			m.wants(err, tt.kind, tt.words)
			if !tt.left {
				m.bare()
			}
			if provisioner.Uncertain(err) != tt.left && name != "the disk of records is full" {
				t.Errorf("%v is uncertain: %v", err, !tt.left)
			}
		})
	}
}

// TestLostRecords: a device of which nothing is known any more is removed before what is under it.
func TestLostRecords(t *testing.T) {
	m := newMachine(t)
	spec := m.volume("a", provisioner.Filesystem)
	d := m.open(spec)
	if err := m.records.Delete(keyOf(spec.VolumeID)); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(t.Context(), spec.VolumeID, d.Name); err != nil {
		t.Fatal(err)
	}
	m.bare()
}

// TestClosedInOrder: while SNAP has the device, or may have it, nothing of what is under it is undone.
func TestClosedInOrder(t *testing.T) {
	busy := &snaprpc.Error{Code: -int(syscall.EBUSY), Message: "Device or resource busy"}
	for _, mode := range []provisioner.VolumeMode{provisioner.Block, provisioner.Filesystem} {
		for name, tt := range map[string]struct {
			change func(*machine, bool)
			kind   error
		}{
			"SNAP does not answer": {func(m *machine, on bool) { m.silent = on }, provisioner.ErrUnavailable},
			"SNAP keeps it": {func(m *machine, on bool) {
				if m.keeps = nil; on {
					m.keeps = busy
				}
			}, provisioner.ErrInUse},
		} {
			t.Run(string(mode)+", "+name, func(t *testing.T) {
				m := newMachine(t)
				spec := m.volume("a", mode)
				d := m.open(spec)
				tt.change(m, true)
				m.wants(m.Close(t.Context(), spec.VolumeID, d.Name), tt.kind, "a-pvc")
				if len(m.stagings()) != 1 || len(m.shown) != 1 {
					t.Errorf("left are stagings %v, shown %v", m.stagings(), m.shown)
				}
				if m.silent {
					_, err := m.Lookup(t.Context(), spec.VolumeID)
					m.wants(err, provisioner.ErrUnavailable, "a-pvc")
					_, err = m.List(t.Context())
					m.wants(err, provisioner.ErrUnavailable, "list devices")
				}
				tt.change(m, false)
				if got, err := m.Lookup(t.Context(), spec.VolumeID); err != nil || got != d {
					t.Errorf("%+v, %v", got, err)
				}
				if err := m.Close(t.Context(), spec.VolumeID, d.Name); err != nil {
					t.Fatal(err)
				}
				m.bare()
			})
		}
	}
}

// TestOfWhat: a device is of one pod of one staging, while that is staged.
func TestOfWhat(t *testing.T) {
	now := metav1.Now()
	for name, tt := range map[string]struct {
		change func(*moorv1alpha1.PodStaging)
		want   bool
	}{
		"that":                   {func(*moorv1alpha1.PodStaging) {}, true},
		"another staging":        {func(p *moorv1alpha1.PodStaging) { p.UID = "t" }, false},
		"another pod":            {func(p *moorv1alpha1.PodStaging) { p.Status.Report.PodUID = "q" }, false},
		"no word of a pod":       {func(p *moorv1alpha1.PodStaging) { p.Status.Report = nil }, false},
		"it is being removed":    {func(p *moorv1alpha1.PodStaging) { p.DeletionTimestamp = &now }, false},
		"its pod has died":       {func(p *moorv1alpha1.PodStaging) { p.Status.Phase = moorv1alpha1.PodStagingBroken }, false},
		"it is not staged again": {func(p *moorv1alpha1.PodStaging) { p.Status.Phase = moorv1alpha1.PodStagingStaging }, false},
	} {
		p := &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{UID: "s"}}
		p.Status.Phase, p.Status.Report = moorv1alpha1.PodStagingStaged, &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "p"}}
		tt.change(p)
		if got := (record{Staging: "s", Pod: "p"}).is(p); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSwept: what is staged for an attachment that is gone, and of which there is no device, is unstaged.
func TestSwept(t *testing.T) {
	m := newMachine(t)
	held := m.volume("held", provisioner.Block)
	m.open(held)
	m.stages = moorv1alpha1.PodStagingStaging
	waits, lost := m.volume("waits", provisioner.Block), m.volume("lost", provisioner.Block)
	for _, spec := range []provisioner.OpenSpec{waits, lost} {
		_, err := m.Open(t.Context(), spec)
		m.wants(err, provisioner.ErrUnavailable, "it is not staged yet")
	}
	m.add(&moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: "of-a-pod"}, Spec: moorv1alpha1.PodStagingSpec{
		ProvisionerName: "crypt", VolumeName: "pv", NodeName: dpu, User: moorv1alpha1.StagingUser{Namespace: "ns", Name: "pod", UID: "u"},
	}})
	m.stages = moorv1alpha1.PodStagingStaged
	forgotten := m.volume("forgotten", provisioner.Block)
	delete(m.bdevs, m.open(forgotten).Name) // by a restart of SNAP
	for _, spec := range []provisioner.OpenSpec{held, lost, forgotten} {
		a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: spec.PublishContext[storagev1alpha1.PublishContextAttachment]}}
		if err := m.api.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, p := range m.stagings() {
		left = append(left, p.Spec.VolumeName)
	}
	slices.Sort(left)
	if d := cmp.Diff([]string{"pv", "pv-held", "pv-waits"}, left); d != "" {
		t.Errorf("left (-want +got):\n%s", d)
	}
}
