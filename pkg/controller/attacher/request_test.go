package attacher

import (
	"errors"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestAccessMode(t *testing.T) {
	const rwo, rox, rwx, rwop = corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod
	type modes = []corev1.PersistentVolumeAccessMode
	cases := map[string]struct {
		modes modes
		newer bool
		want  csispec.VolumeCapability_AccessMode_Mode
		err   error
	}{
		"RWO":           {modes: modes{rwo}, want: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		"RWO, newer":    {modes: modes{rwo}, newer: true, want: csispec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		"RWOP":          {modes: modes{rwop}, want: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		"RWOP, newer":   {modes: modes{rwop}, newer: true, want: csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		"ROX":           {modes: modes{rox}, want: csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		"RWX":           {modes: modes{rwx}, want: csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		"RWX and RWO":   {modes: modes{rwo, rwx}, want: csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		"ROX and RWO":   {modes: modes{rwo, rox}, err: provisioner.ErrInvalid},
		"none":          {err: provisioner.ErrInvalid},
		"one not known": {modes: modes{"Sometimes"}, err: provisioner.ErrInvalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := accessMode(c.modes, c.newer)
			if got != c.want || !errors.Is(err, c.err) {
				t.Fatalf("got %s, %v; want %s, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	fs := corev1.PersistentVolumeFilesystem
	mount := func(fsType string, flags ...string) *csispec.VolumeCapability {
		return &csispec.VolumeCapability{
			AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
		}
	}
	cases := map[string]struct {
		change   func(*corev1.PersistentVolume)
		features Features
		want     *csispec.VolumeCapability
		readOnly bool
	}{
		"file system by default": {change: func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = nil }, want: mount("ext4")},
		"file system": {change: func(pv *corev1.PersistentVolume) {
			pv.Spec.VolumeMode, pv.Spec.CSI.FSType, pv.Spec.MountOptions = &fs, "xfs", []string{"noatime"}
		}, want: mount("xfs", "noatime")},
		"read only, known": {change: func(pv *corev1.PersistentVolume) {
			pv.Spec.VolumeMode, pv.Spec.CSI.ReadOnly = nil, true
		}, features: Features{ReadOnly: true}, want: mount("ext4"), readOnly: true},
		"read only, not known": {change: func(pv *corev1.PersistentVolume) {
			pv.Spec.VolumeMode, pv.Spec.CSI.ReadOnly = nil, true
		}, want: mount("ext4")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pv := volume()
			c.change(pv)
			got, err := requestOf(pv, "n", "ext4", c.features)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Capability, protocmp.Transform()); diff != "" || got.ReadOnly != c.readOnly {
				t.Fatalf("read only %t (-want +got):\n%s", got.ReadOnly, diff)
			}
		})
	}
}
