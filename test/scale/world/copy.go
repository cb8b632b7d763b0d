package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/etcdkv"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/scale/fleet"
)

// rack is how many hosts share a zone.
const rack = 40

// Zone is where a host stands.
func Zone(i int) string { return fmt.Sprintf("zone-%03d", i/rack) }

// Volume is the name of a volume that host number i has from the beginning: its
// claim, its pod and its DPUVolume are all called so.
func Volume(i, n int) string { return fmt.Sprintf("vol-%05d-%d", i, n) }

// VolumeAttachment is the name of Kubernetes' VolumeAttachment of a volume to a node.
func VolumeAttachment(handle, node string) string {
	return podvolume.AttachmentName(handle, driver, node)
}

// names are the names of host number i's objects; those of two hosts have the same
// lengths, so that they can be exchanged in any encoding.
func names(i, volumes int) []string {
	of := fleet.NamesOf(i)
	out := []string{of.Host, of.DPU, fmt.Sprintf("vol-%05d-", i)}
	for n := range volumes {
		out = append(out, VolumeAttachment(Volume(i, n), of.Host))
	}
	return out
}

// registry is the prefix under which an API server keeps all.
const registry = "/registry/"

var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// template is the objects of host number 0.
type template struct {
	entries []etcdkv.Entry
	// own are the UIDs that no other object knows.
	own     []string
	volumes int
}

// pick takes the objects of host number 0 from all.
func pick(all []etcdkv.Entry, volumes int) template {
	out := template{volumes: volumes}
	others, own := map[string]bool{}, map[string]bool{}
	for _, e := range all {
		to := others
		if isOf(e, names(0, volumes)) {
			out.entries = append(out.entries, e)
			to = own
		}
		for _, uid := range uids.FindAllString(string(e.Value), -1) {
			to[uid] = true
		}
	}
	for uid := range own {
		if !others[uid] {
			out.own = append(out.own, uid)
		}
	}
	return out
}

// isOf reports whether an entry's object has one of the names. Events are not
// counted among them: they would be gone within the hour.
func isOf(e etcdkv.Entry, names []string) bool {
	if bytes.HasPrefix(e.Key, []byte(registry+"events/")) {
		return false
	}
	for _, name := range names {
		if bytes.Contains(e.Key, []byte(name)) {
			return true
		}
	}
	return false
}

// of are the objects of host number i: the same bytes, with its own names, zone and
// UIDs.
func (t template) of(i int) []etcdkv.Entry {
	old, fresh := names(0, t.volumes), names(i, t.volumes)
	pairs := []string{Zone(0), Zone(i)}
	for n := range old {
		pairs = append(pairs, old[n], fresh[n])
	}
	for _, uid := range t.own {
		const random = 31 // of 36; the rest says whose it is
		pairs = append(pairs, uid, fmt.Sprintf("%s%05x", uid[:random], i))
	}
	replacer := strings.NewReplacer(pairs...)
	out := make([]etcdkv.Entry, len(t.entries))
	for n, e := range t.entries {
		out[n] = etcdkv.Entry{Key: []byte(replacer.Replace(string(e.Key))), Value: []byte(replacer.Replace(string(e.Value)))}
	}
	return out
}

// Copy makes hosts 1 to hosts-1 with all that host number 0 has, which has so many
// volumes, and returns how many objects there are of one host in each cluster.
func (c *Clusters) Copy(ctx context.Context, hosts, volumes int) (map[string]int, error) {
	out := map[string]int{}
	for _, cluster := range []string{apiserver.Host, apiserver.DPU} {
		store := c.store(cluster)
		all, err := store.All(ctx, registry)
		if err != nil {
			return nil, fmt.Errorf("read the %s cluster: %w", cluster, err)
		}
		t := pick(all, volumes)
		if out[cluster] = len(t.entries); out[cluster] < volumes {
			return nil, errors.New("copy a host: host number 0 has too few objects in the " + cluster + " cluster")
		}
		var loading errgroup.Group
		loading.SetLimit(2 * runtime.NumCPU())
		for i := 1; i < hosts; i++ {
			loading.Go(func() error { return store.Put(ctx, t.of(i)) })
		}
		if err := loading.Wait(); err != nil {
			return nil, fmt.Errorf("load the %s cluster: %w", cluster, err)
		}
	}
	return out, nil
}

// AwaitCopy returns when the caches of both API servers have what Copy wrote last: a
// volume of the last host.
func (c *Clusters) AwaitCopy(ctx context.Context, host, n int) error {
	volume := Volume(host, n)
	attachment := fleet.NamesOf(host).Host + "-" + volume
	cached := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
	return kit.Until(ctx, "the API servers have taken all in", func(ctx context.Context) (bool, error) {
		for _, of := range []struct {
			from client.Client
			o    client.Object
			name string
		}{
			{c.Unlimited.Host, &storagev1alpha1.DPUVolumeAttachment{}, attachment},
			{c.Unlimited.Host, &storagev1alpha1.DPUVolume{}, volume},
			{c.Unlimited.DPU, &storagev1alpha1.VolumeAttachment{}, attachment},
			{c.Unlimited.DPU, &moorv1alpha1.WriterClaim{}, volume},
		} {
			if found, err := kube.Find(ctx, of.from, client.ObjectKey{Namespace: kit.Namespace, Name: of.name}, of.o, cached); err != nil || !found {
				return false, err
			}
		}
		return true, nil
	})
}
