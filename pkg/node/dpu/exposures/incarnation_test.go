package exposures

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestIncarnationOfTheSocket: two runs of a service are told apart though they began within one tick of
// the clock of the file system, or have the same inode, and each begins with the boot of the machine.
func TestIncarnationOfTheSocket(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {}, "b": {}})
	path := func(name string) string { return filepath.Join(k.root, name, socketName) }
	at := time.Unix(1_700_000_000, 5)
	touch := func(name string, at time.Time) {
		t.Helper()
		k.must(os.Chtimes(path(name), at, at))
	}
	touch("a", at)
	touch("b", at)
	a := k.Incarnation("a")
	if !strings.HasPrefix(a, boot+"/") || !strings.HasSuffix(a, "-1700000000000000005") {
		t.Errorf("it is %q", a)
	}
	if b := k.Incarnation("b"); b == a {
		t.Errorf("two sockets of one time are both %s", b)
	}
	touch("a", at.Add(time.Nanosecond))
	if again := k.Incarnation("a"); again == a {
		t.Errorf("a socket that was made later is %s as well", again)
	}
	touch("a", at)
	k.must(os.Chmod(path("a"), 0o666))
	if again := k.Incarnation("a"); again != a {
		t.Errorf("who may use the socket has changed, and %s is %s", a, again)
	}
	k.unlink("a")
	if gone := k.Incarnation("a"); gone != "" {
		t.Errorf("without a socket it is %q", gone)
	}
}

// TestLook: a service that does not answer is an error, one that refuses to tell of ways is none. Ways that
// are not watched are not asked for.
func TestLook(t *testing.T) {
	for name, tc := range map[string]struct {
		down      error
		unwatched bool
		want      error
	}{
		"it tells":           {},
		"it refuses":         {down: errDown},
		"it does not answer": {down: provisioner.ErrSilent, want: provisioner.ErrSilent},
		"nothing is watched": {down: provisioner.ErrSilent, unwatched: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, map[string]*fakeService{"a": {}})
			on := k.onRecord("a", "d")
			k.lose("d")
			k.services["a"].down = tc.down
			if tc.unwatched {
				k.ways = unwatched{}
			}
			if err := k.Look(t.Context(), on); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("the error is %v", err)
			}
			if name == "it tells" && k.loss == "" || tc.unwatched && k.loss != "" {
				t.Errorf("the loss is %q", k.loss)
			}
			if k.Anew("d"); k.anew != 1 && !tc.unwatched {
				t.Error("that the device was opened anew is not told")
			}
		})
	}
}

// TestDuringRemembers: a service on record that has no socket is asked of the device that is taken away,
// and from then on; one of an earlier boot of the machine is not: it would never answer again.
func TestDuringRemembers(t *testing.T) {
	for name, tc := range map[string]struct {
		incarnation string
		want        bool
	}{"of this boot": {boot + "/1-2", true}, "of an earlier boot": {"boot-0/1-2", false}} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, map[string]*fakeService{"a": {}})
			k.unlink("a")
			asked := func() bool {
				names, err := k.Exposures.services.names()
				return err == nil && slices.Contains(names, "a")
			}
			on, meanwhile := &storagev1alpha1.VolumeAttachmentDPU{Provider: "a", Incarnation: tc.incarnation, DeviceName: "d"}, false
			undrained, err := k.During(t.Context(), on, func() error { meanwhile = asked(); return nil })
			if err != nil || undrained != tc.incarnation || meanwhile != tc.want || asked() != tc.want {
				t.Errorf("%q, %v; asked meanwhile: %t, and then: %t", undrained, err, meanwhile, asked())
			}
		})
	}
}

// TestRemember: the service on record is asked from then on though it has no socket, but for one of an
// earlier boot of the machine. What is not known to be of an earlier boot is not taken for it.
func TestRemember(t *testing.T) {
	for name, tc := range map[string]struct {
		incarnation, provider, boot string
		want                        bool
	}{
		"of this boot":                    {boot + "/1-2", "a", boot, true},
		"of an earlier boot":              {"boot-0/1-2", "a", boot, false},
		"of an unknown boot":              {"/1-2", "a", boot, true},
		"of a machine without boots":      {boot + "/1-2", "a", "", true},
		"of a form that is not known":     {"unknown", "a", boot, true},
		"of no incarnation":               {"", "a", boot, false},
		"of no service, by this boot":     {boot + "/1-2", "", boot, false},
		"of neither, so it was not shown": {"", "", boot, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, map[string]*fakeService{"a": {}})
			k.unlink("a")
			k.Exposures.services.boot = tc.boot
			on := &storagev1alpha1.VolumeAttachmentDPU{Provider: tc.provider, Incarnation: tc.incarnation}
			if got := k.Remember(on); got != tc.want {
				t.Errorf("it was unknown: %v, want %v", got, tc.want)
			}
			if k.Remember(on) {
				t.Error("it is unknown the second time")
			}
			names, err := k.Exposures.services.names()
			if err != nil || slices.Contains(names, "a") != tc.want || slices.Contains(names, "") {
				t.Errorf("asked are %q, %v", names, err)
			}
		})
	}
}

// TestDuring: what may be on its way is named whenever the service that is on record, or its way to the
// storage, was not there from begin to end of the withdrawal.
func TestDuring(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*kit) // between what is on record and the withdrawal
		act    func(*kit) // during the withdrawal
		want   string     // after the incarnation on record
		none   bool
	}{
		"nothing happens":                     {none: true},
		"it was restarted before":             {before: func(k *kit) { k.restarted("a") }},
		"it is restarted meanwhile":           {act: func(k *kit) { k.restarted("a") }},
		"it ended before":                     {before: func(k *kit) { k.unlink("a") }},
		"it ends meanwhile":                   {act: func(k *kit) { k.unlink("a") }},
		"its way was lost":                    {before: func(k *kit) { k.loss = "loss" }, want: " loss"},
		"its way is lost meanwhile":           {act: func(k *kit) { k.loss = "loss" }, want: " loss"},
		"its way comes back meanwhile":        {before: func(k *kit) { k.loss = "loss" }, act: func(k *kit) { k.loss = "" }, want: " loss"},
		"its way is lost since the last look": {before: func(k *kit) { k.lose("d") }, want: " loss"},
		"its way is lost meanwhile, unseen":   {act: func(k *kit) { k.lose("d") }, want: " loss"},
		"ways are not watched":                {before: func(k *kit) { k.lose("d"); k.ways = unwatched{} }, none: true},
		"what its way is, is not told":        {before: func(k *kit) { k.services["a"].down = errDown }, none: true},
		"it does not answer":                  {before: func(k *kit) { k.services["a"].down = provisioner.ErrSilent }, want: " untold " + kubetest.Begin.UTC().Format(time.RFC3339Nano)},
		"it does not answer any more":         {act: func(k *kit) { k.services["a"].down = provisioner.ErrSilent }, want: " untold " + kubetest.Begin.UTC().Format(time.RFC3339Nano)},
		"a loss was known before it fell silent": {before: func(k *kit) {
			k.loss, k.services["a"].down = "loss", provisioner.ErrSilent
		}, want: " loss"},
		"both: what ended is the worse": {before: func(k *kit) { k.loss = "loss" }, act: func(k *kit) { k.restarted("a") }},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, map[string]*fakeService{"a": {}})
			on := k.onRecord("a", "d")
			if tc.before != nil {
				tc.before(k)
			}
			undrained, err := k.During(t.Context(), on, func() error {
				if tc.act != nil {
					tc.act(k)
				}
				return nil
			})
			want := on.Incarnation + tc.want
			if tc.none {
				want = ""
			}
			if err != nil || undrained != want {
				t.Errorf("named is %q, %v; want %q", undrained, err, want)
			}
		})
	}
}

// TestDuringFails: a device that could not be taken away has not ended, and what its function has kept is
// left for the host.
func TestDuringFails(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {}})
	on := k.onRecord("a", "d")
	k.restarted("a")
	undrained, err := k.During(t.Context(), on, func() error { return errDown })
	if !errors.Is(err, errDown) || undrained != "" || len(k.services["a"].discarded) != 0 {
		t.Errorf("%q, %v, discarded %q", undrained, err, k.services["a"].discarded)
	}
}

// TestDuringAsksTheServiceOnRecord: the withdrawal asks that service though it has no socket.
func TestDuringAsksTheServiceOnRecord(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {down: errDown}, "b": {}})
	on := k.onRecord("a", "d")
	on.Attached = false // so nothing is to be discarded
	k.unlink("a")
	if _, err := k.During(t.Context(), on, func() error { return k.Withdraw(t.Context(), "d") }); !errors.Is(err, errDown) {
		t.Errorf("withdrawn on the word of another service: %v", err)
	}
}

// TestDiscard: requests that the function of a device may have kept, for a service that has ended, are
// ended with it, before the withdrawal counts. There are none where the device was not shown since, where
// no function was on record, where it was virtio-fs, or where the machine has booted since.
func TestDiscard(t *testing.T) {
	epoch := int64(3)
	same := func(*storagev1alpha1.VolumeAttachmentDPU) {}
	for name, tc := range map[string]struct {
		change  func(*storagev1alpha1.VolumeAttachmentDPU)
		ended   bool
		discard bool
	}{
		"it was shown all the time":        {change: same},
		"it was shown, and has ended":      {change: same, ended: true, discard: true},
		"it was ready, and has ended":      {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Attached, d.PreEmulated = false, true }, ended: true, discard: true},
		"it was neither, and has ended":    {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Attached = false }, ended: true},
		"something is kept":                {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Attached, d.KeptEpoch = false, &epoch }, discard: true},
		"something is kept, and has ended": {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Attached, d.KeptEpoch = false, &epoch }, ended: true, discard: true},
		"of no service":                    {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Provider, d.KeptEpoch = "", &epoch }},
		"of no function":                   {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.PCIDeviceAddress, d.KeptEpoch = "", &epoch }},
		"by virtio-fs":                     {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.BdevAttrs, d.KeptEpoch = nil, &epoch }},
		"of an earlier boot":               {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Incarnation, d.KeptEpoch = "boot-0/1-2", &epoch }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, failure := range []error{nil, errDown} {
				k := newKit(t, map[string]*fakeService{"a": {down: failure}})
				on := k.onRecord("a", "d")
				if tc.change(on); tc.ended {
					k.restarted("a")
				}
				undrained, err := k.During(t.Context(), on, func() error { return nil })
				if fails := failure != nil && tc.discard; fails != (err != nil) || fails && (!errors.Is(err, failure) || !strings.Contains(err.Error(), "SNAP service a: ") || undrained != "") {
					t.Errorf("%q, %v", undrained, err)
				}
				if got := slices.Equal(k.services["a"].discarded, []string{"d at 3b:00.2"}); got != tc.discard {
					t.Errorf("discarded %q", k.services["a"].discarded)
				}
			}
		})
	}
}
