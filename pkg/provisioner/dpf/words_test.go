package dpf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestPublish(t *testing.T) {
	nvme := &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", NVMeAttrs: &storagev1alpha1.NVMeAttrs{NamespaceID: 3}}
	ours := map[string]string{"nv-volumeName": "vol", "nv-volumeAttachmentName": "n-vol", "nv-pciDeviceAddress": "3b:00.2", "nv-nvmeNsID": "3"}
	with := func(m map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range m {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for _, tc := range []struct {
		name     string
		metadata map[string]string
		dpu      *storagev1alpha1.AttachedDPU
		want     map[string]string
		fault    string
	}{
		{"NVMe", nil, nvme, ours, ""},
		{"with the vendor's metadata", map[string]string{"lun": "7"}, nvme, with(ours, "lun", "7"), ""},
		{
			"file system", nil, &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", VirtioFSAttrs: &storagev1alpha1.VirtioFSAttrs{FilesystemTag: "tag"}},
			map[string]string{"nv-volumeName": "vol", "nv-volumeAttachmentName": "n-vol", "nv-pciDeviceAddress": "3b:00.2", "nv-virtioFsTag": "tag"},
			"",
		},
		{"no DPU", nil, nil, map[string]string{"nv-volumeName": "vol", "nv-volumeAttachmentName": "n-vol"}, ""},
		{"name taken: volume", map[string]string{"nv-volumeName": "x"}, nvme, nil, "nv-volumeName"},
		{"name taken: attachment", map[string]string{"nv-volumeAttachmentName": "x"}, nvme, nil, "nv-volumeAttachmentName"},
		{"name taken: address", map[string]string{"nv-pciDeviceAddress": "x"}, nvme, nil, "nv-pciDeviceAddress"},
		{"name taken: namespace", map[string]string{"nv-nvmeNsID": "3"}, nvme, nil, "nv-nvmeNsID"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := &storagev1alpha1.DPUVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: "n-vol"}, Spec: storagev1alpha1.DPUVolumeAttachmentSpec{DPUVolumeName: "vol"},
				Status: storagev1alpha1.DPUVolumeAttachmentStatus{AttachmentMetadata: tc.metadata, DPU: tc.dpu},
			}
			before := o.DeepCopy()
			got, err := publish(o)
			if tc.fault != "" {
				if err == nil || err.Error() != "attachment n-vol: the vendor's metadata uses the reserved name "+tc.fault {
					t.Errorf("got %v", err)
				}
			} else if diff := cmp.Diff(tc.want, got.PublishContext); err != nil || diff != "" {
				t.Errorf("%v; publish context (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(before, o); diff != "" {
				t.Errorf("the attachment, which is the cache's, was changed:\n%s", diff)
			}
		})
	}
}

func TestSameRequest(t *testing.T) {
	request := func() storagev1alpha1.DPUVolumeSpec {
		mode := corev1.PersistentVolumeBlock
		return storagev1alpha1.DPUVolumeSpec{
			DPUStoragePolicyName: "p", Parameters: map[string]string{"a": "1"}, VolumeMode: &mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*storagev1alpha1.DPUVolumeSpec)
		want   bool
	}{
		{"same", func(*storagev1alpha1.DPUVolumeSpec) {}, true},
		{"other size", func(s *storagev1alpha1.DPUVolumeSpec) {
			s.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
		}, true},
		{"other policy", func(s *storagev1alpha1.DPUVolumeSpec) { s.DPUStoragePolicyName = "q" }, false},
		{"other parameter", func(s *storagev1alpha1.DPUVolumeSpec) { s.Parameters["a"] = "2" }, false},
		{"one parameter more", func(s *storagev1alpha1.DPUVolumeSpec) { s.Parameters["b"] = "" }, false},
		{"no parameters", func(s *storagev1alpha1.DPUVolumeSpec) { s.Parameters = nil }, false},
		{"other mode", func(s *storagev1alpha1.DPUVolumeSpec) { *s.VolumeMode = corev1.PersistentVolumeFilesystem }, false},
		{"other access", func(s *storagev1alpha1.DPUVolumeSpec) { s.AccessModes[0] = corev1.ReadWriteMany }, false},
		{"more access", func(s *storagev1alpha1.DPUVolumeSpec) { s.AccessModes = append(s.AccessModes, corev1.ReadOnlyMany) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := request()
			tc.change(&b)
			if got := sameRequest(request(), b); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if got := sameRequest(b, request()); got != tc.want {
				t.Errorf("the other way round: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestFits(t *testing.T) {
	for _, tc := range []struct {
		size, least, most int64
		want              bool
	}{
		{5, 0, 0, true}, {5, 5, 0, true}, {5, 5, 5, true}, {5, 6, 0, false}, {5, 1, 4, false}, {5, 1, 9, true},
	} {
		if got := fits(tc.size, provisioner.VolumeSpec{CapacityBytes: tc.least, LimitBytes: tc.most}); got != tc.want {
			t.Errorf("%d in %d..%d: %v", tc.size, tc.least, tc.most, got)
		}
	}
}

func TestRefused(t *testing.T) {
	r, kind := schema.GroupResource{Resource: "dpuvolumes"}, schema.GroupKind{Kind: "DPUVolume"}
	broken := errors.New("x")
	for name, tc := range map[string]struct{ from, to error }{
		"invalid":      {apierrors.NewInvalid(kind, "v", nil), provisioner.ErrInvalid},
		"bad request":  {apierrors.NewBadRequest("x"), provisioner.ErrInvalid},
		"conflict":     {apierrors.NewConflict(r, "v", broken), provisioner.ErrBusy},
		"exists":       {apierrors.NewAlreadyExists(r, "v"), provisioner.ErrBusy},
		"forbidden":    {apierrors.NewForbidden(r, "v", broken), provisioner.ErrPrecondition},
		"unauthorized": {apierrors.NewUnauthorized("x"), provisioner.ErrPrecondition},
		"too many":     {apierrors.NewTooManyRequests("x", 1), provisioner.ErrUnavailable},
		"timeout":      {apierrors.NewServerTimeout(r, "get", 1), provisioner.ErrUnavailable},
		"not reached":  {errors.New("connection refused"), provisioner.ErrUnavailable},
		"canceled":     {context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			err := refused("create volume v", fmt.Errorf("wrapped: %w", tc.from))
			if !errors.Is(err, tc.to) || !errors.Is(err, tc.from) || !strings.HasPrefix(err.Error(), "create volume v: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestWaited(t *testing.T) {
	const idle = "its controller has not looked at it yet; is snap-host-controller running?"
	var said []metav1.Condition
	kube.Conditions{List: &said}.False(storagev1alpha1.ConditionReady, storagev1alpha1.ReasonPending, "not ready: Bound: the array is full")
	var ready []metav1.Condition
	kube.Conditions{List: &ready}.True(storagev1alpha1.ConditionReady)
	for _, tc := range []struct {
		name       string
		err        error
		conditions []metav1.Condition
		want       string
	}{
		{"done", nil, said, ""},
		{"nobody looked", context.DeadlineExceeded, nil, "make v: context deadline exceeded: " + idle},
		{"no words", context.DeadlineExceeded, ready, "make v: context deadline exceeded: " + idle},
		{"words", context.DeadlineExceeded, said, "make v: context deadline exceeded: not ready: Bound: the array is full"},
		{"given up", context.Canceled, said, "make v: context canceled: not ready: Bound: the array is full"},
		{"another failure", provisioner.ErrBusy, said, "make v: busy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := waited(tc.err, "make v", tc.conditions)
			if tc.err == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if !errors.Is(err, tc.err) || err.Error() != tc.want {
				t.Errorf("got %q, want %q", err, tc.want)
			}
		})
	}
}

// TestHolder: who has a single-node volume, as one of its attachments sees it.
func TestHolder(t *testing.T) {
	user := func(node string, isShown bool) storagev1alpha1.DPUVolumeAttachment {
		return storagev1alpha1.DPUVolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: node + "-vol"},
			Spec:       storagev1alpha1.DPUVolumeAttachmentSpec{DPUNodeName: node},
			Status:     storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: &isShown},
		}
	}
	for _, tc := range []struct {
		name            string
		users           []storagev1alpha1.DPUVolumeAttachment
		asked, ownShown bool
		want            string
	}{
		{"nobody", nil, false, false, ""},
		{"we alone", []storagev1alpha1.DPUVolumeAttachment{user("me", false)}, true, false, ""},
		{"another, not shown yet", []storagev1alpha1.DPUVolumeAttachment{user("b", false)}, false, false, "b"},
		{"another", []storagev1alpha1.DPUVolumeAttachment{user("b", true)}, false, false, "b"},
		{"both wait", []storagev1alpha1.DPUVolumeAttachment{user("b", false), user("me", false)}, true, false, ""},
		{"the other won", []storagev1alpha1.DPUVolumeAttachment{user("b", true), user("me", false)}, true, false, "b"},
		{"we won", []storagev1alpha1.DPUVolumeAttachment{user("b", false), user("me", true)}, true, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := holderOf(tc.users, "me-vol", tc.asked, tc.ownShown); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
