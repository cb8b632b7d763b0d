package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

func TestContract(t *testing.T) {
	t.Run("Volumes", func(t *testing.T) {
		provisionertest.TestVolumes(t, func(t *testing.T) provisioner.Volumes { return &directory{path: t.TempDir()} })
	})
	t.Run("Attachments", func(t *testing.T) {
		provisionertest.TestAttachments(t, func(t *testing.T) (provisioner.Volumes, provisioner.Attachments) {
			d := &directory{path: t.TempDir()}
			return d, d
		})
	})
}

// TestOverCSI makes, publishes and deletes a volume by CSI's calls.
func TestOverCSI(t *testing.T) {
	c := client(t)
	mode := &csispec.VolumeCapability{
		AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}},
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	made, err := c.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &csispec.CapacityRange{RequiredBytes: 8 << 20}, VolumeCapabilities: []*csispec.VolumeCapability{mode},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetVolume().GetVolumeId()
	publish(t, c, id, "node-1", mode, codes.OK)
	publish(t, c, id, "node-2", mode, codes.FailedPrecondition)
	if _, err := c.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: id}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("delete a volume that a node has: %v", err)
	}
	if _, err := c.ControllerUnpublishVolume(t.Context(), &csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "node-1"}); err != nil {
		t.Error(err)
	}
	if _, err := c.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: id}); err != nil {
		t.Error(err)
	}
}

func publish(t *testing.T, c csispec.ControllerClient, id, node string, mode *csispec.VolumeCapability, want codes.Code) {
	t.Helper()
	_, err := c.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: mode})
	if status.Code(err) != want {
		t.Errorf("publish to %s: %v, want %s", node, err, want)
	}
}

// client runs the program's server and returns a client of it.
func client(t *testing.T) csispec.ControllerClient {
	t.Helper()
	dir, err := os.MkdirTemp("", "p") // short: the path of a unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, endpoint, dir) }()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_, _ = conn.Close(), os.RemoveAll(dir)
	})
	return csispec.NewControllerClient(conn)
}
