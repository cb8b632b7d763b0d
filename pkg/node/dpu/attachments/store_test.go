package attachments

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner"
)

var errLost = errors.New("connection lost")

// kit is the DPU cluster in memory. The cache and the API server are two, so that each has what a test gives it.
type kit struct {
	*Store
	t *testing.T
	// cache and server take the objects of a test.
	cache, server client.WithWatch
	// lost is the error of each read, of the cache as of the server.
	lost error
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{t: t}
	k.cache, k.server = newServer(t), newServer(t)
	k.Store = &Store{DPU: kube.Cluster{Client: k.readBy(k.cache), Live: k.readBy(k.server)}, Node: "dpu-1", Namespace: kubetest.DPUNamespace}
	return k
}

func newServer(t *testing.T) client.WithWatch {
	t.Helper()
	scheme, err := kube.NewScheme(storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme)
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithIndex(&storagev1alpha1.VolumeAttachment{}, NodeField, func(o client.Object) []string {
		return []string{o.(*storagev1alpha1.VolumeAttachment).Spec.NodeName}
	}).Build()
}

// readBy is the client with the faults.
func (k *kit) readBy(of client.WithWatch) client.Client {
	return interceptor.NewClient(of, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if k.lost != nil {
				return k.lost
			}
			return w.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if k.lost != nil {
				return k.lost
			}
			return w.List(ctx, l, opts...)
		},
	})
}

func (k *kit) add(to client.Client, objects ...client.Object) {
	k.t.Helper()
	for _, o := range objects {
		made := o.DeepCopyObject().(client.Object)
		err := to.Create(k.t.Context(), made)
		if err == nil && !o.GetDeletionTimestamp().IsZero() {
			err = to.Delete(k.t.Context(), made)
		}
		if err != nil {
			k.t.Fatal(err)
		}
	}
}

// attachment is one to this DPU, with a device and a function on record.
func attachment(name, volume, device, address string) *storagev1alpha1.VolumeAttachment {
	a := kubetest.VolumeAttachment(name, volume, "dpu-1")
	a.Status.DPU.DeviceName, a.Status.DPU.PCIDeviceAddress = device, address
	return a
}

// going is an attachment that is being deleted.
func going(a *storagev1alpha1.VolumeAttachment) *storagev1alpha1.VolumeAttachment {
	a.Finalizers = []string{storagev1alpha1.FinalizerDPUAttachment}
	a.DeletionTimestamp = &metav1.Time{Time: kubetest.Begin}
	return a
}

func namesOf(all []storagev1alpha1.VolumeAttachment) (out []string) {
	for i := range all {
		out = append(out, all[i].Name)
	}
	return out
}

// TestListsThoseOfThisDPU: an attachment to another DPU is none of this one's business, whatever a cache or
// a server gives; and a list that fails is not an empty one.
func TestListsThoseOfThisDPU(t *testing.T) {
	k := newKit(t)
	elsewhere := attachment("elsewhere", "v", "", "")
	elsewhere.Namespace = "another"
	k.add(k.cache, attachment("cached", "v", "", ""), kubetest.VolumeAttachment("other", "v", "dpu-2"), elsewhere)
	k.add(k.server, attachment("live", "v", "", ""), kubetest.VolumeAttachment("other", "v", "dpu-2"), elsewhere)
	for want, list := range map[string]func(context.Context) ([]storagev1alpha1.VolumeAttachment, error){"cached": k.Cached, "live": k.Live} {
		k.lost = nil
		all, err := list(t.Context())
		if got := namesOf(all); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, %v", want, got, err)
		}
		k.lost = errLost
		if all, err := list(t.Context()); len(all) != 0 || !errors.Is(err, errLost) || !strings.Contains(err.Error(), "attachments of DPU dpu-1") {
			t.Errorf("%s: %q, %v", want, namesOf(all), err)
		}
	}
}

// orNone is what was read; nil if that is nothing.
func orNone[T any, O interface {
	*T
	client.Object
}](o O, err error) (client.Object, error) {
	if o == nil {
		return nil, err
	}
	return o, err
}

// TestReadsTheServer: what a right is judged by is read from the API server itself. What is gone is told
// from what cannot be read, and an object that was made anew by the name is not the one of before.
func TestReadsTheServer(t *testing.T) {
	a := attachment("a", "v", "d", "")
	a.UID = "first"
	anew := a.DeepCopy()
	anew.UID = "second"
	reads := map[string]func(*kit) (client.Object, error){
		"attachment": func(k *kit) (client.Object, error) { return orNone(k.Again(k.t.Context(), a)) },
		"volume":     func(k *kit) (client.Object, error) { return orNone(k.Volume(k.t.Context(), a)) },
		"claim":      func(k *kit) (client.Object, error) { return orNone(k.WriterClaim(k.t.Context(), "v")) },
	}
	there := map[string]client.Object{"attachment": a, "volume": kubetest.Volume("v", "gold"), "claim": kubetest.WriterClaim("v", "dpu-1", "a", 1)}
	for what, read := range reads {
		t.Run(what, func(t *testing.T) {
			k := newKit(t)
			k.add(k.cache, there[what]) // where it is not looked for
			if got, err := read(k); got != nil || err != nil {
				t.Errorf("it is gone, and read is %v, %v", got, err)
			}
			k.add(k.server, there[what])
			if got, err := read(k); err != nil || got == nil || got.GetName() != there[what].GetName() {
				t.Errorf("read is %v, %v", got, err)
			}
			k.lost = errLost
			if got, err := read(k); got != nil || !errors.Is(err, errLost) {
				t.Errorf("it cannot be read, and read is %v, %v", got, err)
			} else if what == "claim" && (!errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "who may write volume v")) {
				t.Errorf("it says %v", err)
			}
		})
	}
	k := newKit(t)
	k.add(k.server, anew)
	if now, err := k.Again(t.Context(), a); now != nil || err != nil {
		t.Errorf("made anew, and read is %v, %v", now, err)
	}
}

// TestOnRecord: what the host has of this DPU is taken from the attachments, as far as it is on record: the
// functions are not given to other volumes, and the devices are watched.
func TestOnRecord(t *testing.T) {
	k := newKit(t)
	shown := attachment("shown", "v", "d", "3b:00.2")
	shown.Status.DPU.Provider, shown.Status.DPU.FuncVUID = "nvidia", "vuid"
	nameless := attachment("nameless", "", "n", "")
	nameless.Spec.Source.VolumeRef = nil
	k.add(k.cache, shown, attachment("new", "w", "", ""), attachment("made", "x", "e", ""), going(attachment("going", "y", "f", "3b:00.3")), nameless)
	if got, want := k.Reserved(t.Context()), map[string]string{"3b:00.2": "d", "3b:00.3": "f"}; !maps.Equal(got, want) {
		t.Errorf("reserved are %v, want %v", got, want)
	}
	if got, want := k.Functions(t.Context()), map[string]string{"d": "vuid"}; !maps.Equal(got, want) {
		t.Errorf("functions are %v, want %v", got, want)
	}
	want := map[string]OnRecord{"d": {Volume: "v", Service: "nvidia"}, "e": {Volume: "x"}, "f": {Volume: "y", Going: true}}
	if got, err := k.Devices(t.Context()); err != nil || !maps.Equal(got, want) {
		t.Errorf("devices are %+v, %v, want %+v", got, err, want)
	}
	k.lost = errLost
	if got, err := k.Devices(t.Context()); got != nil || !errors.Is(err, errLost) {
		t.Errorf("devices are %+v, %v", got, err)
	}
}

// TestPreceding: of the attachments of one volume on this DPU one works. What the cache has of an
// attachment is not another one, though it may be behind what the pass knows.
func TestPreceding(t *testing.T) {
	mine := attachment("mine", "v", "d", "")
	granted := attachment("granted", "v", "", "")
	granted.Spec.Epoch = 1
	for name, tc := range map[string]struct {
		mine   *storagev1alpha1.VolumeAttachment
		others []client.Object
		want   string
	}{
		"alone":                   {mine: mine},
		"it is first":             {mine: mine, others: []client.Object{attachment("later", "v", "", "")}},
		"another is first":        {mine: mine, others: []client.Object{attachment("later", "v", "", ""), granted}, want: "granted"},
		"of another volume":       {mine: attachment("mine", "w", "d", ""), others: []client.Object{granted}},
		"itself, with its device": {mine: attachment("mine", "v", "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			k.add(k.cache, append(tc.others, mine)...)
			first, err := k.Preceding(t.Context(), tc.mine)
			got := ""
			if first != nil {
				got = first.Name
			}
			if err != nil || got != tc.want {
				t.Errorf("%q goes before it, %v, want %q", got, err, tc.want)
			}
			k.lost = errLost
			if first, err := k.Preceding(t.Context(), tc.mine); first != nil || !errors.Is(err, errLost) {
				t.Errorf("it cannot be told, and %v goes before it, %v", first, err)
			}
		})
	}
}

// TestVolumeID: plugins call a volume by the vendor's claim.
func TestVolumeID(t *testing.T) {
	if got := VolumeID("v"); got != "v-pvc" {
		t.Errorf("it is called %q", got)
	}
}
