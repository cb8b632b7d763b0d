package csi

import (
	"context"
	"errors"
	"slices"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// shelf is a platform that tells from where its volumes are reached.
type shelf struct {
	*platform
	kept []provisioner.SnapshotSpec
	room provisioner.Place
}

func (s *shelf) snapshots() provisioner.Snapshots { return shelved{s} }

type shelved struct{ s *shelf }

func (k shelved) Create(_ context.Context, spec provisioner.SnapshotSpec) (provisioner.Snapshot, error) {
	k.s.kept = append(k.s.kept, spec)
	return provisioner.Snapshot{ID: spec.Name, VolumeID: spec.VolumeID, AccessibleTopology: k.s.volume.AccessibleTopology}, nil
}
func (shelved) Delete(context.Context, string) error { return nil }
func (shelved) Get(context.Context, string) (provisioner.Snapshot, error) {
	return provisioner.Snapshot{}, provisioner.ErrNotFound
}

func (shelved) List(context.Context, provisioner.SnapshotFilter, provisioner.Page) ([]provisioner.Snapshot, string, error) {
	return nil, "", nil
}

func (s *shelf) Capacity(_ context.Context, _ map[string]string, from provisioner.Place) (provisioner.Capacity, error) {
	s.room = from
	return provisioner.Capacity{Available: 7}, nil
}

func place(keysAndValues ...string) *csispec.Topology {
	out := &csispec.Topology{Segments: map[string]string{}}
	for i := 0; i < len(keysAndValues); i += 2 {
		out.Segments[keysAndValues[i]] = keysAndValues[i+1]
	}
	return out
}

func placed(places ...provisioner.Place) (*shelf, *Server) {
	s := &shelf{platform: &platform{volume: provisioner.Volume{ID: "v", CapacityBytes: 1 << 30, AccessibleTopology: places}}}
	return s, New(Options{Platform: provisioner.Platform{Volumes: s.platform, Snapshots: s.snapshots(), Room: s}, Places: true})
}

// TestWantedPlaces: what is wanted reaches the platform in the order of
// preference, each place once, and what it made tells from where it is reached.
func TestWantedPlaces(t *testing.T) {
	s, server := placed(provisioner.Place{"rack": "2"})
	got, err := server.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{
		Name: "v", VolumeCapabilities: caps(blockCap(snw)),
		AccessibilityRequirements: &csispec.TopologyRequirement{
			Requisite: []*csispec.Topology{place("rack", "1"), place("rack", "2"), place("rack", "2", "row", "7")},
			Preferred: []*csispec.Topology{place("rack", "2"), place("rack", "1")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []provisioner.Place{{"rack": "2"}, {"rack": "1"}, {"rack": "2", "row": "7"}}
	if diff := cmp.Diff(want, s.spec.AccessibleFrom); diff != "" {
		t.Errorf("wanted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]*csispec.Topology{place("rack", "2")}, got.GetVolume().GetAccessibleTopology(), protocmp.Transform()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if _, err := server.GetCapacity(t.Context(), &csispec.GetCapacityRequest{AccessibleTopology: place("rack", "1")}); err != nil || s.room["rack"] != "1" {
		t.Errorf("the room of %v: %v", s.room, err)
	}
	for _, service := range []csispec.PluginCapability_Service_Type{
		csispec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS, csispec.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS,
	} {
		if !slices.Contains(PluginCapabilities(server.o), service) {
			t.Errorf("%v is not announced", service)
		}
		if slices.Contains(PluginCapabilities(Options{Platform: server.o.Platform}), service) {
			t.Errorf("%v is announced of a platform without places", service)
		}
	}
}

// TestPlacesOfSnapshots: a snapshot is where its volume is, and is not made for
// places where that is not.
func TestPlacesOfSnapshots(t *testing.T) {
	host := place("rack", "1", "dpu", "d1")
	for name, tc := range map[string]struct {
		own  []provisioner.Place
		from []*csispec.Topology
		want []*csispec.Topology
		err  error
	}{
		"no wishes":               {[]provisioner.Place{{"rack": "1"}}, nil, []*csispec.Topology{place("rack", "1")}, nil},
		"from everywhere":         {nil, []*csispec.Topology{host}, nil, nil},
		"where it is wanted":      {[]provisioner.Place{{"rack": "1"}}, []*csispec.Topology{host, place("rack", "2")}, []*csispec.Topology{host}, nil},
		"elsewhere":               {[]provisioner.Place{{"rack": "3"}}, []*csispec.Topology{host, place("rack", "2")}, nil, provisioner.ErrExhausted},
		"perhaps where it should": {[]provisioner.Place{{"row": "1"}}, []*csispec.Topology{host}, []*csispec.Topology{place("row", "1")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, server := placed(tc.own...)
			got, err := server.CreateSnapshot(t.Context(), &csispec.CreateSnapshotRequest{
				Name: "s", SourceVolumeId: "v", AccessibilityRequirements: &csispec.TopologyRequirement{Requisite: tc.from},
			})
			if !errors.Is(err, tc.err) || (len(s.kept) == 0) != (tc.err != nil) {
				t.Fatalf("%v; kept %v", err, s.kept)
			}
			if diff := cmp.Diff(tc.want, got.GetSnapshot().GetAccessibleTopology(), protocmp.Transform()); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnePlace: a platform of which everything is at one place refuses what is
// wanted elsewhere only.
func TestOnePlace(t *testing.T) {
	p := &platform{volume: provisioner.Volume{ID: "v", CapacityBytes: 1 << 30}}
	server := New(Options{Platform: provisioner.Platform{Volumes: p, Room: &shelf{}}, Topology: provisioner.Place{"rack": "1"}})
	for rack, want := range map[string]error{"1": nil, "2": provisioner.ErrExhausted} {
		got, err := server.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{
			Name: "v", VolumeCapabilities: caps(blockCap(snw)),
			AccessibilityRequirements: &csispec.TopologyRequirement{Requisite: []*csispec.Topology{place("rack", rack)}},
		})
		if !errors.Is(err, want) {
			t.Errorf("rack %s: %v", rack, err)
		}
		if err == nil && (len(p.spec.AccessibleFrom) != 0 || got.GetVolume().GetAccessibleTopology()[0].GetSegments()["rack"] != "1") {
			t.Errorf("asked for %v, told %v", p.spec.AccessibleFrom, got)
		}
		room, err := server.GetCapacity(t.Context(), &csispec.GetCapacityRequest{AccessibleTopology: place("rack", rack)})
		if err != nil || (room.GetAvailableCapacity() == 7) != (want == nil) {
			t.Errorf("room of rack %s: %v, %v", rack, room, err)
		}
	}
}
