package main

import (
	"path/filepath"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want places
		bad  bool
	}{
		"none":            {nil, nil, false},
		"one":             {[]string{"--topology=rack=1"}, places{{"rack": "1"}}, false},
		"of several keys": {[]string{"--topology=rack=1,row=2"}, places{{"rack": "1", "row": "2"}}, false},
		"several":         {[]string{"--topology=rack=1", "--topology", "rack=2"}, places{{"rack": "1"}, {"rack": "2"}}, false},
		"empty":           {[]string{"--topology="}, nil, true},
		"no value":        {[]string{"--topology=rack"}, nil, true},
		"no key":          {[]string{"--topology==1"}, nil, true},
		"a key twice":     {[]string{"--topology=rack=1,rack=2"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var o options
			fs := pflag.NewFlagSet("local-vendor", pflag.ContinueOnError)
			o.bind(fs)
			if err := fs.Parse(c.args); (err != nil) != c.bad {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(c.want, o.places); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func rack(value string) *csispec.Topology {
	return &csispec.Topology{Segments: map[string]string{"rack": value}}
}

// TestPlacesByCSI: a volume is made where the request says, and all that is told of
// it says where that is.
func TestPlacesByCSI(t *testing.T) {
	dir := t.TempDir()
	endpoint := "unix://" + filepath.Join(dir, "s")
	run(t, "--mode=controller", "--endpoint="+endpoint, "--target-dir="+dir+"/target", "--metrics-bind-address=0", "--topology=rack=1", "--topology=rack=2")
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c, ctx := csispec.NewControllerClient(conn), t.Context()
	create := func(name, at string) (*csispec.CreateVolumeResponse, error) {
		return c.CreateVolume(ctx, &csispec.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*csispec.VolumeCapability{capability()}, CapacityRange: &csispec.CapacityRange{RequiredBytes: 1 << 20},
			AccessibilityRequirements: &csispec.TopologyRequirement{Requisite: []*csispec.Topology{rack(at)}},
		})
	}
	made, err := create("near", "2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := create("far", "3"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a volume where there is no storage: %v", err)
	}
	list, err := c.ListVolumes(ctx, &csispec.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	snapshot, err := c.CreateSnapshot(ctx, &csispec.CreateSnapshotRequest{Name: "s", SourceVolumeId: made.GetVolume().GetVolumeId()})
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][]*csispec.Topology{
		"CreateVolume": made.GetVolume().GetAccessibleTopology(), "ListVolumes": list.GetEntries()[0].GetVolume().GetAccessibleTopology(),
		"CreateSnapshot": snapshot.GetSnapshot().GetAccessibleTopology(),
	} {
		if diff := cmp.Diff([]*csispec.Topology{rack("2")}, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	for at, room := range map[string]bool{"1": true, "2": true, "3": false} {
		got, err := c.GetCapacity(ctx, &csispec.GetCapacityRequest{AccessibleTopology: rack(at)})
		if err != nil || (got.GetAvailableCapacity() > 0) != room {
			t.Errorf("room of rack %s: %v, %v", at, got, err)
		}
	}
}
