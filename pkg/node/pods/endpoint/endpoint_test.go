package endpoint

import (
	"context"
	"errors"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestPublish(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(r *csispec.NodePublishVolumeRequest)
		mode     corev1.PersistentVolumeMode
		readOnly bool
	}{
		"Filesystem": {func(*csispec.NodePublishVolumeRequest) {}, corev1.PersistentVolumeFilesystem, false},
		"Block": {func(r *csispec.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
		}, corev1.PersistentVolumeBlock, false},
		"readOnly": {func(r *csispec.NodePublishVolumeRequest) { r.Readonly = true }, corev1.PersistentVolumeFilesystem, true},
		"ReadOnlyMany": {func(r *csispec.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
		}, corev1.PersistentVolumeFilesystem, true},
		"ReadWriteOncePod": {func(r *csispec.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}, corev1.PersistentVolumeFilesystem, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.play()
			b.must(b.publishVolume(t.Context(), c.change))
			first := b.staging()
			b.must(b.publishVolume(t.Context(), c.change))
			if now := b.staging(); now.UID != first.UID {
				t.Error("a call that was repeated made another PodStaging")
			}
			want := moorv1alpha1.PodStagingSpec{
				ProvisionerName: driver, VolumeName: "pv-1", NodeName: node, ReadOnly: c.readOnly,
				User: moorv1alpha1.StagingUser{Namespace: "ns", Name: "user", UID: "uid-1"},
			}
			if d := cmp.Diff(want, first.Spec); d != "" {
				t.Error(d)
			}
			if len(first.Labels)+len(first.Annotations)+len(first.OwnerReferences) != 0 {
				t.Errorf("%+v: a node may not set these", first.ObjectMeta)
			}
			shown := show.Want{Directory: "dir-" + string(first.UID), Target: target, Mode: c.mode, ReadOnly: c.readOnly}
			if d := cmp.Diff(map[string]show.Want{target: shown}, b.shown); d != "" {
				t.Error(d)
			}
			for range 2 {
				b.must(b.unpublishVolume(t.Context()))
			}
			if b.staging() != nil || len(b.shown) != 0 {
				t.Errorf("left: %v, %v", b.staging(), b.shown)
			}
		})
	}
}

// What is waited for is told, and the next call goes on with it.
func TestPublishWaits(t *testing.T) {
	b := newBed(t)
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable, "not staged yet", "was not looked at yet")
	first := b.staging()
	b.status(moorv1alpha1.PodStagingStaging, "")
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable, "is Staging")
	b.status(moorv1alpha1.PodStagingStaging, "the pod waits for its image")
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable, "the pod waits for its image")
	b.status(moorv1alpha1.PodStagingBroken, "the pod was killed")
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable, "the pod was killed")
	b.status(moorv1alpha1.PodStagingStaged, "")
	b.fails = errors.New("a busy mount")
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable, "a busy mount", target)
	b.fails = nil
	b.must(b.publishVolume(t.Context(), nil))
	if b.staging().UID != first.UID {
		t.Error("another PodStaging was made meanwhile")
	}
}

// A staging that failed is told once, with its words, and undone; the next call begins anew.
func TestPublishFails(t *testing.T) {
	b := newBed(t)
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable)
	first := b.staging()
	b.status(moorv1alpha1.PodStagingFailed, "no such key")
	err := b.publishVolume(t.Context(), nil)
	if refused(t, err, nil, "no such key"); csiserver.Code(err) != codes.Internal {
		t.Errorf("code %s, want Internal", csiserver.Code(err))
	}
	if b.staging() != nil {
		t.Error("it is not deleted")
	}
	b.play()
	b.must(b.publishVolume(t.Context(), nil))
	if b.staging().UID == first.UID {
		t.Error("it was taken again")
	}
}

// What cannot serve any more is removed, and the removal is waited for.
func TestPublishAnew(t *testing.T) {
	for name, change := range map[string]func(b *bed, p *moorv1alpha1.PodStaging){
		"boot":   func(b *bed, _ *moorv1alpha1.PodStaging) { b.boot = "boot-1" },
		"volume": func(_ *bed, p *moorv1alpha1.PodStaging) { p.Spec.VolumeName = "pv-0" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			r, err := parse(publishRequest())
			b.must(err)
			old := b.wanted(r, "pv-1")
			change(b, old)
			old.Finalizers = []string{moorv1alpha1.FinalizerPodStaging}
			b.add(old)
			b.status(moorv1alpha1.PodStagingStaged, "")
			refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable, "remove the staging that was there before", "not unstaged yet", "is Staged")
			if len(b.shown) != 0 {
				t.Error("the old one was shown")
			}
			b.play()
			b.must(b.publishVolume(t.Context(), nil))
			if got := b.staging(); got.UID == old.UID || got.Spec.VolumeName != "pv-1" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestPublishRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *csispec.NodePublishVolumeRequest)
		kind   error
		words  string
	}{
		"no volume": {func(r *csispec.NodePublishVolumeRequest) { r.VolumeId = "" }, provisioner.ErrInvalid, "volume id is missing"},
		"no target": {func(r *csispec.NodePublishVolumeRequest) { r.TargetPath = "" }, provisioner.ErrInvalid, "target path is missing"},
		"relative":  {func(r *csispec.NodePublishVolumeRequest) { r.TargetPath = "a/b" }, provisioner.ErrInvalid, "not absolute"},
		"no mode":   {func(r *csispec.NodePublishVolumeRequest) { r.VolumeCapability = nil }, provisioner.ErrInvalid, "volume capability is missing"},
		"no pod":    {func(r *csispec.NodePublishVolumeRequest) { delete(r.VolumeContext, podUID) }, provisioner.ErrInvalid, "podInfoOnMount"},
		"ephemeral": {func(r *csispec.NodePublishVolumeRequest) { r.VolumeContext[ephemeral] = "true" }, provisioner.ErrInvalid, "PersistentVolumeClaim"},
		"fsType":    {func(r *csispec.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().FsType = "ext4" }, provisioner.ErrInvalid, `fsType "ext4"`},
		"mountOptions": {func(r *csispec.NodePublishVolumeRequest) {
			r.VolumeCapability.GetMount().MountFlags = []string{"noatime"}
		}, provisioner.ErrInvalid, `mount options ["noatime"]`},
		"no PV":        {func(r *csispec.NodePublishVolumeRequest) { r.TargetPath = at("pv-9") }, provisioner.ErrUnavailable, "no PersistentVolume pv-9"},
		"other handle": {func(r *csispec.NodePublishVolumeRequest) { r.VolumeId = "other" }, provisioner.ErrUnavailable, "no PersistentVolume pv-1 of driver crypt with this handle"},
		"other driver": {func(r *csispec.NodePublishVolumeRequest) { r.TargetPath = at("pv-2") }, provisioner.ErrUnavailable, "no PersistentVolume pv-2 of driver crypt"},
		"no kubelet's": {func(r *csispec.NodePublishVolumeRequest) { r.TargetPath = "/mnt/target" }, provisioner.ErrInvalid, "not one of a kubelet"},
	} {
		b := newBed(t)
		b.add(pv("pv-2", "other", handle))
		t.Run(name, func(t *testing.T) { refused(t, b.publishVolume(t.Context(), c.change), c.kind, c.words) })
		if b.staging() != nil {
			t.Errorf("%s: a PodStaging was made", name)
		}
	}
}

// at is the target of a volume with a file system.
func at(volume string) string { return strings.ReplaceAll(target, "pv-1", volume) }

func TestPublishTaken(t *testing.T) {
	b := newBed(t)
	b.serves = errors.New("the labels of the node are others")
	refused(t, b.publishVolume(t.Context(), nil), b.serves)
	if b.staging() != nil {
		t.Fatal("a PodStaging was made")
	}
	b.serves = nil
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable)
	b.serves = errors.New("the labels of the node are others")
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable, "not staged yet") // what has begun goes on
	b.serves = nil
	refused(t, b.publishVolume(t.Context(), func(r *csispec.NodePublishVolumeRequest) { r.Readonly = true }), provisioner.ErrExists, "read-only false")
	another := func(r *csispec.NodePublishVolumeRequest) {
		r.VolumeContext[podUID], r.TargetPath = "uid-2", strings.ReplaceAll(target, "uid-1", "uid-2")
		r.VolumeCapability.AccessMode.Mode = csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	refused(t, b.publishVolume(t.Context(), another), provisioner.ErrInUse, "ReadWriteOncePod", "ns/user")
	b.hidden = true
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable) // the cache is behind
	if b.staging() == nil {
		t.Error("it is gone")
	}
}

// A cache that does not show a PodStaging is no evidence that there is none.
func TestUnpublishBehindCache(t *testing.T) {
	b := newBed(t)
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable)
	p := b.staging()
	_, err := kube.AddFinalizer(t.Context(), b.direct, p, moorv1alpha1.FinalizerPodStaging)
	b.must(err)
	b.status(moorv1alpha1.PodStagingUnstagingFailed, "device is busy")
	b.hidden = true
	refused(t, b.unpublishVolume(t.Context()), provisioner.ErrUnavailable, "not unstaged yet", "device is busy")
	if b.staging().DeletionTimestamp.IsZero() {
		t.Error("it is not deleted")
	}
	b.hidden = false
	b.fails = provisioner.ErrBusy
	refused(t, b.unpublishVolume(t.Context()), provisioner.ErrBusy, target)
	b.fails = nil
	b.play()
	b.must(b.unpublishVolume(t.Context()))
	if b.staging() != nil {
		t.Error("it is there yet")
	}
	_, err = b.NodeUnpublishVolume(t.Context(), &csispec.NodeUnpublishVolumeRequest{})
	refused(t, err, provisioner.ErrInvalid, "target path is missing")
}

// A call that ends before any of its steps converges when it is repeated.
func TestCrash(t *testing.T) {
	for step := 1; ; step++ {
		b := newBed(t)
		b.play()
		n, steps := 0, step
		ctx, cancel := context.WithCancel(t.Context())
		b.before = func(string) {
			if n++; n == steps {
				cancel()
			}
		}
		err := b.publishVolume(ctx, nil)
		ended := n < steps
		b.must(b.publishVolume(t.Context(), nil))
		if len(b.shown) != 1 || b.staging() == nil {
			t.Fatalf("step %d: shown %v", step, b.shown)
		}
		again, cancelAgain := context.WithCancel(t.Context())
		n, cancel = 0, cancelAgain
		_ = b.unpublishVolume(again)
		ended = ended && n < steps
		b.must(b.unpublishVolume(t.Context()))
		cancelAgain()
		if len(b.shown) != 0 || b.staging() != nil {
			t.Fatalf("step %d: left %v, %v", step, b.shown, b.staging())
		}
		if ended {
			if err != nil || step < 5 {
				t.Errorf("it ended after %d steps with %v", step, err)
			}
			return
		}
	}
}

func TestStatsAndHealth(t *testing.T) {
	b := newBed(t)
	stats := func() (*csispec.NodeGetVolumeStatsResponse, error) {
		return b.NodeGetVolumeStats(t.Context(), &csispec.NodeGetVolumeStatsRequest{VolumeId: handle, VolumePath: target})
	}
	health := func(id, path string) []*csispec.VolumeHealth_VolumeHealthEntry {
		t.Helper()
		got, err := b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{VolumeId: id, VolumePublishPath: path})
		b.must(err)
		return got.GetVolumeHealth().GetHealthStatuses()
	}
	_, err := stats()
	refused(t, err, provisioner.ErrNotFound)
	refused(t, b.publishVolume(t.Context(), nil), provisioner.ErrUnavailable)
	b.status(moorv1alpha1.PodStagingStaged, "")
	b.must(b.publishVolume(t.Context(), nil))
	if got, err := stats(); err != nil || got.GetUsage()[0].GetTotal() != 7 {
		t.Errorf("%v, %v", got, err)
	}
	if got := health(handle, target); len(got) != 0 {
		t.Errorf("problems of a volume that is well: %v", got)
	}
	b.status(moorv1alpha1.PodStagingBroken, "the staging pod was killed")
	_, err = stats()
	refused(t, err, provisioner.ErrUnavailable, "the staging pod was killed")
	for _, path := range []string{"", target} {
		got := health(handle, path)
		if len(got) != 1 || got[0].GetReason() != reasonDied || got[0].GetMessage() != "the staging pod was killed" || got[0].GetStatus() != csispec.VolumeHealthErrorType_INACCESSIBLE {
			t.Errorf("at %q: %v", path, got)
		}
	}
	if got := append(health(handle, "/other"), health("other", "")...); len(got) != 0 {
		t.Errorf("problems of another: %v", got)
	}
	_, err = b.NodeGetVolumeStats(t.Context(), &csispec.NodeGetVolumeStatsRequest{})
	refused(t, err, provisioner.ErrInvalid)
	_, err = b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{})
	refused(t, err, provisioner.ErrInvalid)
}

func TestInfo(t *testing.T) {
	b := newBed(t)
	info, err := b.NodeGetInfo(t.Context(), nil)
	if err != nil || info.GetNodeId() != node || info.GetMaxVolumesPerNode() != 0 || info.GetAccessibleTopology() != nil {
		t.Errorf("%v, %v", info, err)
	}
	caps, err := b.NodeGetCapabilities(t.Context(), nil)
	b.must(err)
	for _, c := range caps.GetCapabilities() {
		if c.GetRpc().GetType() == csispec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME {
			t.Error("it stages by itself")
		}
	}
	for _, c := range []struct {
		req  any
		want string
	}{
		{&csispec.NodePublishVolumeRequest{VolumeId: "v", TargetPath: "/t"}, "/t"},
		{&csispec.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: "/t"}, "/t"},
		{&csispec.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: "/t"}, "/t"},
		{&csispec.NodeGetInfoRequest{}, ""},
	} {
		if got := Key(c.req); got != c.want {
			t.Errorf("key of %T: %q", c.req, got)
		}
	}
}
