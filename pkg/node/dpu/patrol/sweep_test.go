package patrol

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
)

// TestOrphans: what an attachment records, or what is made for its volume, is its own; what has no name of
// ours is left alone. All else belongs to none.
func TestOrphans(t *testing.T) {
	attachment := func(volume, device string) storagev1alpha1.VolumeAttachment {
		a := *kubetest.VolumeAttachment("a", volume, "dpu-1")
		if a.Status.DPU.DeviceName = device; volume == "" {
			a.Spec.Source.VolumeRef = nil
		}
		return a
	}
	for name, tc := range map[string]struct {
		shown []string
		made  []devices.Made
		all   []storagev1alpha1.VolumeAttachment
		want  []orphan
	}{
		"nothing is there":             {all: []storagev1alpha1.VolumeAttachment{attachment("v", "d")}},
		"it is on record":              {shown: []string{"d"}, made: []devices.Made{{Plugin: "p", VolumeID: "v-pvc", Device: "d"}}, all: []storagev1alpha1.VolumeAttachment{attachment("v", "d")}},
		"it is shown":                  {shown: []string{"d"}, want: []orphan{{service: "s", device: "d"}}},
		"it is made":                   {made: []devices.Made{{Plugin: "p", VolumeID: "v-pvc", Device: "d"}}, want: []orphan{{plugin: "p", device: "d", volumeID: "v-pvc"}}},
		"it is shown, made":            {shown: []string{"d"}, made: []devices.Made{{Plugin: "p", VolumeID: "v-pvc", Device: "d"}}, want: []orphan{{service: "s", device: "d"}, {plugin: "p", device: "d", volumeID: "v-pvc"}}},
		"it is another's":              {made: []devices.Made{{Plugin: "p", VolumeID: "theirs", Device: "d"}}},
		"its subsystem is on record":   {shown: []string{snap.NQN("d")}, all: []storagev1alpha1.VolumeAttachment{attachment("v", "d")}},
		"its volume is to be attached": {shown: []string{"d"}, made: []devices.Made{{Plugin: "p", VolumeID: "v-pvc", Device: "d"}}, all: []storagev1alpha1.VolumeAttachment{attachment("v", "")}},
		"another volume is": {
			shown: []string{"d"}, made: []devices.Made{{Plugin: "p", VolumeID: "v-pvc", Device: "d"}}, all: []storagev1alpha1.VolumeAttachment{attachment("w", "e")},
			want: []orphan{{service: "s", device: "d"}, {plugin: "p", device: "d", volumeID: "v-pvc"}},
		},
		"an attachment that has no device owns none": {shown: []string{""}, all: []storagev1alpha1.VolumeAttachment{attachment("v", "")}, want: []orphan{{service: "s"}}},
		"one that names no volume owns none":         {made: []devices.Made{{Plugin: "p", VolumeID: "-pvc", Device: "d"}}, all: []storagev1alpha1.VolumeAttachment{attachment("", "")}, want: []orphan{{plugin: "p", device: "d", volumeID: "-pvc"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := found{shown: exposures.Listing{Exposures: map[string]provisioner.Exposure{}, Service: map[string]string{}}, made: tc.made}
			for _, device := range tc.shown {
				f.shown.Exposures[device], f.shown.Service[device] = provisioner.Exposure{Device: device}, "s"
			}
			if got := f.orphans(tc.all); !slices.Equal(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// round makes a round that has to succeed.
func (k *kit) round() {
	k.t.Helper()
	k.must(k.Round(k.t.Context()))
}

// TestSweepWaitsForAPeriod: what belongs to no attachment is removed after more than a period in which that
// was so all the time: first what is shown, and then the device, which the vendor would call in use.
func TestSweepWaitsForAPeriod(t *testing.T) {
	k := newKit(t)
	k.shows("dev-v")
	k.makes("v")
	all := []string{"shown dev-v", "made dev-v"}
	k.round()
	k.clock.Step(period)
	k.round()
	k.want(all...)
	shown := k.service.shows
	k.service.shows, k.plugin.made = nil, nil // and it is gone for one round
	k.round()
	k.service.shows = shown
	k.makes("v")
	k.clock.Step(time.Second)
	k.round()
	k.clock.Step(period)
	k.round()
	k.want(all...)
	k.clock.Step(time.Nanosecond)
	changes := k.changes
	if k.round(); k.changes != changes+1 {
		t.Errorf("that a function is free was told %d times", k.changes-changes)
	}
	k.want()
}

// TestSweepFindsOthersMeanwhile: while one thing is removed another one is waited for.
func TestSweepFindsOthersMeanwhile(t *testing.T) {
	k := newKit(t)
	k.shows("one")
	k.round()
	k.clock.Step(period + time.Second)
	k.shows("two")
	k.round()
	k.want("shown two")
	k.clock.Step(period)
	k.round()
	k.want("shown two")
	k.clock.Step(time.Second)
	k.round()
	k.want()
}

// due is an orphan that the next round removes.
func due(t *testing.T) *kit {
	t.Helper()
	k := newKit(t)
	k.shows("dev-v")
	k.makes("v")
	k.round()
	k.clock.Step(period + time.Second)
	return k
}

// TestSweepByTheServer: the word of the cache is not enough, neither when it is suspected nor right before
// each removal.
func TestSweepByTheServer(t *testing.T) {
	a := *kubetest.VolumeAttachment("of-v", "v", "dpu-1")
	a.Status.DPU.DeviceName = "dev-v"
	lost := errors.New("no route")
	for name, tc := range map[string]struct {
		at   int // the read of the server
		come bool
		left []string
		says string
	}{
		"it is not reached":            {at: 1, left: []string{"shown dev-v", "made dev-v"}, says: "nothing is swept: "},
		"it is lost before the first":  {at: 2, left: []string{"shown dev-v", "made dev-v"}, says: "device dev-v is not swept: "},
		"it is lost before the second": {at: 3, left: []string{"made dev-v"}, says: "device dev-v is not swept: "},
		"it knows of an attachment":    {at: 1, come: true, left: []string{"shown dev-v", "made dev-v"}},
		"one comes before the first":   {at: 2, come: true, left: []string{"shown dev-v", "made dev-v"}},
		"one comes before the second":  {at: 3, come: true, left: []string{"made dev-v"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := due(t)
			k.server.reads = 0
			k.server.onRead = func() {
				switch {
				case k.server.reads < tc.at:
				case tc.come:
					k.server.all = []storagev1alpha1.VolumeAttachment{a}
				default:
					k.server.lost = lost
				}
			}
			err := k.Round(t.Context())
			if tc.come && err != nil || !tc.come && (!errors.Is(err, lost) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("it says %v", err)
			}
			k.want(tc.left...)
		})
	}
}

// TestSweepKeepsAwayFromWork: what a pass works on is left to the next round.
func TestSweepKeepsAwayFromWork(t *testing.T) {
	for name, tc := range map[string]struct {
		volumeID, device string
		left             []string
	}{
		"on the device":    {"", "dev-v", []string{"shown dev-v", "made dev-v"}},
		"on the volume":    {"v-pvc", "", []string{"made dev-v"}}, // of what is shown the volume is not known
		"on another thing": {"w-pvc", "dev-w", nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := due(t)
			unlock, _ := k.exposures.Lock(tc.volumeID, tc.device)
			k.round()
			k.want(tc.left...)
			unlock()
			k.round()
			k.want()
		})
	}
}

// TestSweepFails: what cannot be removed is told, and is tried again; what comes after it is removed all the
// same.
func TestSweepFails(t *testing.T) {
	k := due(t)
	k.service.withdraw = errDown
	if err := k.Round(t.Context()); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "sweep: ") {
		t.Errorf("it says %v", err)
	}
	k.want("shown dev-v")
	k.service.withdraw = nil
	k.round()
	k.want()
	k = due(t)
	k.plugin.keeps = errDown
	if err := k.Round(t.Context()); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "sweep device dev-v: ") {
		t.Errorf("it says %v", err)
	}
	k.want("made dev-v")
	k.plugin.keeps = nil
	k.round()
	k.want()
}

// TestSweepWithoutThePlugin: a device of a plugin that has gone away right after it listed it stays.
func TestSweepWithoutThePlugin(t *testing.T) {
	k := due(t)
	k.service.shows = nil
	k.server.onRead = func() { k.plugin.down = errDown }
	if err := k.Round(t.Context()); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "sweep device dev-v: ") {
		t.Errorf("it says %v", err)
	}
	k.want("made dev-v")
}
