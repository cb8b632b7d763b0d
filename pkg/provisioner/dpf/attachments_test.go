package dpf

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/snapshot"
)

const namespace = "users"

// cacheOf is a cache that reads the fake client; its informers are silent
// unless a test speaks through them.
type cacheOf struct {
	informertest.FakeInformers
	reader client.Reader
}

func (c *cacheOf) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, k, o, opts...)
}

func (c *cacheOf) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, l, opts...)
}

// hostCluster is a host cluster in memory in which every write is followed by play.
type hostCluster struct {
	client.WithWatch
	platform provisioner.Platform
	patches  int
	// beforeDelete is what happens right before an object is deleted.
	beforeDelete func()
}

// newHost makes the cluster; play sees the object written and changes the world
// as the controllers behind would, before the write returns.
func newHost(t *testing.T, play func(c client.Client, o client.Object), objects ...client.Object) *hostCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &hostCluster{}
	played := func(c client.Client, o client.Object, err error) error {
		if err == nil && play != nil {
			play(c, o)
		}
		return err
	}
	byVolume, byGroup := attachment.Index(), snapshot.Index()
	h.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(byVolume.Object, byVolume.Field, byVolume.Extract).WithIndex(byGroup.Object, byGroup.Field, byGroup.Extract).
		WithStatusSubresource(&storagev1alpha1.DPUVolume{}, &storagev1alpha1.DPUVolumeAttachment{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return played(c, o, c.Create(ctx, o, opts...))
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if h.beforeDelete != nil {
					h.beforeDelete()
				}
				if err := c.Delete(ctx, o, opts...); err != nil {
					return err
				}
				return letGo(ctx, c, o)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				h.patches++
				return played(c, o, c.Patch(ctx, o, p, opts...))
			},
		}).Build()
	cache := &cacheOf{FakeInformers: informertest.FakeInformers{Scheme: scheme}, reader: h.WithWatch}
	var err error
	h.platform, err = Platform(t.Context(), request.Options{Client: h.WithWatch, Cache: cache, Namespace: namespace, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// letGo takes off an object that is being deleted what snap-host-controller holds it by.
func letGo(ctx context.Context, c client.Client, o client.Object) error {
	now := o.DeepCopyObject().(client.Object)
	if found, err := kube.Find(ctx, c, client.ObjectKeyFromObject(o), now); err != nil || !found {
		return err
	}
	return kube.RemoveFinalizers(ctx, c, now, storagev1alpha1.FinalizerDPUVolumeAttachment, storagev1alpha1.FinalizerDPUVolume)
}

func aVolume() *storagev1alpha1.DPUVolume {
	return &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vol"}}
}

func aNode(name string) *moorv1alpha1.DPUStorageNode {
	return &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + name}}
}

func anAttachment(role storagev1alpha1.Role) *storagev1alpha1.DPUVolumeAttachment {
	return &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kube.AttachmentName("a", "vol"), UID: "1", Labels: map[string]string{storagev1alpha1.LabelReplicaOf: "vol"}},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: "a", DPUVolumeName: "vol", Role: role,
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
		Status: storagev1alpha1.DPUVolumeAttachmentStatus{DPU: &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2"}},
	}
}

// TestMadeWithTheHold: what this controller makes has snap-host-controller's finalizer
// from the beginning; what a host asks for has none, which a policy demands.
func TestMadeWithTheHold(t *testing.T) {
	modes(t, func(t *testing.T, requester storagev1alpha1.Requester, open func(*hostCluster) *attachment.Attachments) {
		h := newHost(t, show(t), aVolume(), aNode("a"))
		if _, err := open(h).Attach(t.Context(), attachSpec()); err != nil {
			t.Fatal(err)
		}
		made := anAttachment("")
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
			t.Fatal(err)
		}
		if held := controllerutil.ContainsFinalizer(made, storagev1alpha1.FinalizerDPUVolumeAttachment); held == (requester == storagev1alpha1.RequesterNode) {
			t.Errorf("finalizers %v", made.Finalizers)
		}
	})
}

// show is the DPU: it shows what has the role Primary, and nothing else.
func show(t *testing.T) func(client.Client, client.Object) {
	return func(c client.Client, o client.Object) {
		a, ok := o.(*storagev1alpha1.DPUVolumeAttachment)
		if !ok || a.Spec.Role == storagev1alpha1.RoleReplica {
			return
		}
		seen := a.DeepCopy()
		yes := true
		seen.Status.DPUAttached = &yes
		seen.Status.DPU = &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", NVMeAttrs: &storagev1alpha1.NVMeAttrs{NamespaceID: 1}}
		if err := c.Status().Update(t.Context(), seen); err != nil {
			t.Error(err)
		}
	}
}

func attachSpec() provisioner.AttachSpec {
	return provisioner.AttachSpec{VolumeID: "vol", Node: "a", AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}}
}

func TestAttachTakesWhatIsThere(t *testing.T) {
	gone := anAttachment(storagev1alpha1.RoleReplica)
	now := metav1.Now()
	gone.DeletionTimestamp, gone.Finalizers = &now, []string{"x/y"}
	hotplug := anAttachment(storagev1alpha1.RoleReplica)
	hotplug.Spec.FunctionTypeConfig = storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
	before := anAttachment("")
	warm := anAttachment(storagev1alpha1.RoleReplica)
	yes := true
	warm.Spec.Warmth, warm.Status.DPUAttached = storagev1alpha1.WarmthAttached, &yes
	before.Status.DPUAttached = &yes
	for name, tc := range map[string]struct {
		there   *storagev1alpha1.DPUVolumeAttachment
		patches int
		want    error
	}{
		"nothing":                     {nil, 0, nil},
		"replica":                     {anAttachment(storagev1alpha1.RoleReplica), 1, nil},
		"replica that is shown":       {warm, 1, nil},
		"primary":                     {before, 0, nil},
		"replica being released":      {gone, 1, provisioner.ErrBusy},
		"replica of another function": {hotplug, 0, provisioner.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{aVolume(), aNode("a")}
			if tc.there != nil {
				objects = append(objects, tc.there.DeepCopy())
			}
			h := newHost(t, show(t), objects...)
			got, err := h.platform.Attachments.Attach(t.Context(), attachSpec())
			if !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if h.patches != tc.patches {
				t.Errorf("%d patches, want %d", h.patches, tc.patches)
			}
			if err != nil {
				return
			}
			if got.PublishContext["nv-pciDeviceAddress"] != "3b:00.2" || got.PublishContext["nv-volumeAttachmentName"] != "a-vol" {
				t.Errorf("publish context %v", got.PublishContext)
			}
			now := anAttachment("")
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || now.Spec.Role == storagev1alpha1.RoleReplica {
				t.Errorf("role %q, error %v", now.Spec.Role, err)
			}
			if tc.there != nil && now.UID != tc.there.UID {
				t.Error("the replica was not promoted, but made anew")
			}
		})
	}
}

// TestPromotionWaits: pre-emulated is not attached.
func TestPromotionWaits(t *testing.T) {
	h := newHost(t, nil, aVolume(), aNode("a"), anAttachment(storagev1alpha1.RoleReplica))
	_, err := h.platform.Attachments.Attach(t.Context(), attachSpec())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestVolumeReplication(t *testing.T) {
	type parameters = map[string]string
	rwo, rwx := provisioner.ReadWriteOnce, provisioner.ReadWriteMany
	is := func(shares, replicas int32, warmth storagev1alpha1.Warmth, failover storagev1alpha1.FailoverMode) *storagev1alpha1.Replication {
		return &storagev1alpha1.Replication{MaxShares: shares, MaxMountReplicaCount: replicas, Warmth: warmth, Failover: failover}
	}
	soon := is(2, 1, "PreEmulated", "Fence")
	soon.ReleaseAfterSeconds = ptr.To(int32(90))
	for name, tc := range map[string]struct {
		in    parameters
		mode  provisioner.AccessMode
		want  *storagev1alpha1.Replication
		words string
	}{
		"nothing":             {parameters{}, rwo, nil, ""},
		"one share":           {parameters{"maxShares": "1"}, rwo, nil, ""},
		"three shares":        {parameters{"maxShares": "3"}, rwo, is(3, 2, "PreEmulated", "Fence"), ""},
		"once per pod":        {parameters{"maxShares": "2"}, provisioner.ReadWriteOncePod, is(2, 1, "PreEmulated", "Fence"), ""},
		"many writers":        {parameters{"maxShares": "3"}, rwx, is(3, 0, "PreEmulated", "Fence"), ""},
		"many, with replicas": {parameters{"maxShares": "3", "maxMountReplicaCount": "1", "replicaWarmth": "Attached"}, rwx, is(3, 1, "Attached", "Fence"), ""},
		"fewer":               {parameters{"maxShares": "3", "maxMountReplicaCount": "0", "failover": "Off"}, rwo, is(3, 0, "PreEmulated", "Off"), ""},
		"failover alone":      {parameters{"failover": "Fence"}, rwo, is(1, 0, "PreEmulated", "Fence"), ""},
		"off alone":           {parameters{"failover": "Off"}, rwo, is(1, 0, "PreEmulated", "Off"), ""},
		"single, attached":    {parameters{"maxShares": "2", "replicaWarmth": "Attached"}, rwo, nil, "must stay hidden"},
		"released soon":       {parameters{"maxShares": "2", "replicaReleaseAfter": "1m30s"}, rwo, soon, ""},
		"released whenever":   {parameters{"maxShares": "2", "replicaReleaseAfter": "soon"}, rwo, nil, "a duration of whole seconds"},
		"too many":            {parameters{"maxShares": "2", "maxMountReplicaCount": "2"}, rwo, nil, "allowed are 0 to 1"},
		"no number":           {parameters{"maxShares": "x"}, rwo, nil, "a whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, bind(t))
			spec := provisioner.VolumeSpec{Name: "vol", CapacityBytes: 1 << 20, Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{tc.mode}, Parameters: tc.in}
			spec.Parameters["policy"], spec.Parameters["raid"] = "p", "10"
			got, err := h.platform.Volumes.Create(t.Context(), spec)
			if tc.words != "" {
				if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), tc.words) {
					t.Errorf("error %v, want ErrInvalid with %q", err, tc.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			made := aVolume()
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, made.Spec.Replication); d != "" {
				t.Errorf("replication (-want +got):\n%s", d)
			}
			if len(made.Spec.Parameters) != 1 || made.Spec.Parameters["raid"] != "10" {
				t.Errorf("the vendor gets %v", made.Spec.Parameters)
			}
			for _, key := range []string{"maxShares", "maxMountReplicaCount"} {
				if asked := tc.in[key]; asked != "" && got.Parameters[key] != asked {
					t.Errorf("%s is %q, asked was %q", key, got.Parameters[key], asked)
				}
			}
			if _, err := h.platform.Volumes.Create(t.Context(), spec); err != nil {
				t.Errorf("the same again: %v", err)
			}
			spec.Parameters["maxShares"], spec.Parameters["maxMountReplicaCount"] = "9", "0"
			if _, err := h.platform.Volumes.Create(t.Context(), spec); tc.mode == rwo && !errors.Is(err, provisioner.ErrExists) {
				t.Errorf("with another replication: %v, want ErrExists", err)
			}
		})
	}
}

// bind is the controllers behind a volume.
func bind(t *testing.T) func(client.Client, client.Object) {
	return func(c client.Client, o client.Object) {
		v := o.(*storagev1alpha1.DPUVolume).DeepCopy()
		v.Status = storagev1alpha1.DPUVolumeStatus{Phase: storagev1alpha1.DPUVolumeBound, State: &storagev1alpha1.DPUVolumeState{
			VolumeInfo: &storagev1alpha1.VolumeInfo{Capacity: v.Spec.Resources.Requests},
		}}
		if err := c.Status().Update(t.Context(), v); err != nil {
			t.Error(err)
		}
	}
}
