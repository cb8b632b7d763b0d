package vendorplugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

// GetDevice answers what the device was made by, also after a restart of the plugin, and
// nothing of a device that was made before there were records, or by the same name later.
func TestRecords(t *testing.T) {
	dir, records := root(t), filepath.Join(t.TempDir(), "requests")
	fake := provisionertest.NewFake().Platform().Host
	begin := func(records string) (pluginv1.StoragePluginServiceClient, func()) {
		o := fakeOptions(fake)
		o.Records = records
		return raw(t, dir), start(t, dir, o)
	}
	request := func(volume, tenant string) *pluginv1.CreateDeviceRequest {
		return &pluginv1.CreateDeviceRequest{
			VolumeId: volume, VolumeMode: "Block", AccessModes: []pluginv1.AccessMode{pluginv1.AccessMode_ACCESS_MODE_RWO},
			PublishContext: map[string]string{"secret": "s"}, VolumeContext: map[string]string{"tenant": tenant}, StorageParameters: map[string]string{"tier": "gold"},
		}
	}
	want := func(c pluginv1.StoragePluginServiceClient, volume string, want *pluginv1.GetDeviceResponse) {
		t.Helper()
		got, err := c.GetDevice(t.Context(), &pluginv1.GetDeviceRequest{VolumeId: volume})
		if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", volume, err, diff)
		}
	}
	answer := func(r *pluginv1.CreateDeviceRequest) *pluginv1.GetDeviceResponse {
		return &pluginv1.GetDeviceResponse{
			VolumeMode: r.GetVolumeMode(), AccessModes: r.GetAccessModes(),
			PublishContext: r.GetPublishContext(), VolumeContext: r.GetVolumeContext(), StorageParameters: r.GetStorageParameters(),
		}
	}
	create := func(c pluginv1.StoragePluginServiceClient, r *pluginv1.CreateDeviceRequest) {
		t.Helper()
		if _, err := c.CreateDevice(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}

	c, stop := begin("")
	create(c, request("old", "x"))
	want(c, "old", &pluginv1.GetDeviceResponse{VolumeMode: "Block"})
	stop()

	c, stop = begin(records)
	want(c, "old", &pluginv1.GetDeviceResponse{VolumeMode: "Block"})
	create(c, request("v", "x"))
	create(c, request("v", "y")) // repeated, with what is so by now
	want(c, "v", answer(request("v", "y")))
	stop()

	c, _ = begin(records)
	want(c, "v", answer(request("v", "y")))
	files, err := os.ReadDir(records)
	if err != nil || len(files) != 1 {
		t.Fatalf("records %v, %v", files, err)
	}
	if info, err := files[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a record may be read by others: %v, %v", info.Mode(), err)
	}
	if _, err := c.DeleteDevice(t.Context(), &pluginv1.DeleteDeviceRequest{VolumeId: "v"}); err != nil {
		t.Fatal(err)
	}
	if files, _ = os.ReadDir(records); len(files) != 0 {
		t.Errorf("a record outlives its device: %v", files)
	}

	// Where nothing can be kept the call is to be repeated.
	if err := os.RemoveAll(records); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(records, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDevice(t.Context(), request("v", "x")); status.Code(err) != codes.Unavailable {
		t.Errorf("with a full disk: %v", err)
	}
}
