package served

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Who wrote which fields of a volume.
const (
	policyWritten      = `{"f:spec":{".":{},"f:dpuStoragePolicyName":{}}}`
	replicationWritten = `{"f:spec":{".":{},"f:replication":{".":{},"f:maxShares":{}}}}`
	grantWritten       = `{"f:status":{"f:lastGrant":{".":{},"f:epoch":{}}}}`
)

func attachmentOf(role storagev1alpha1.Role) client.Object {
	return &storagev1alpha1.DPUVolumeAttachment{Spec: storagev1alpha1.DPUVolumeAttachmentSpec{Role: role}}
}

func volumeWith(r *storagev1alpha1.Replication, g *storagev1alpha1.LastGrant, written ...string) client.Object {
	v := &storagev1alpha1.DPUVolume{
		Spec: storagev1alpha1.DPUVolumeSpec{Replication: r}, Status: storagev1alpha1.DPUVolumeStatus{LastGrant: g},
	}
	v.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "of nothing"}}
	for _, fields := range written {
		v.ManagedFields = append(v.ManagedFields, metav1.ManagedFieldsEntry{FieldsV1: metav1.NewFieldsV1(fields)})
	}
	return v
}

func TestLost(t *testing.T) {
	replicated, granted := &storagev1alpha1.Replication{}, &storagev1alpha1.LastGrant{}
	for _, row := range []struct {
		name string
		read client.Object
		want string
	}{
		{"a replica", attachmentOf(storagev1alpha1.RoleReplica), ""},
		{"a primary", attachmentOf(storagev1alpha1.RolePrimary), ""},
		{"an attachment of another's schema", attachmentOf(""), "DPUVolumeAttachment.spec.role"},
		{"a volume that has all", volumeWith(replicated, granted, policyWritten, replicationWritten, grantWritten), ""},
		{"a volume that wants no replicas, and was never granted", volumeWith(nil, nil, policyWritten), ""},
		{"a volume with labels of these names", volumeWith(nil, nil, `{"f:metadata":{"f:labels":{".":{},"f:replication":{},"f:lastGrant":{}}}}`), ""},
		{"a volume whose record cannot be read", volumeWith(nil, nil, `{"f:spec":[]}`, ``), ""},
		{"a volume of another's schema", volumeWith(nil, nil, replicationWritten, grantWritten), "DPUVolume.spec.replication"},
		{"a volume of another's schema that wants no replicas", volumeWith(nil, nil, policyWritten, grantWritten), "DPUVolume.status.lastGrant"},
		{"a volume that was never granted", volumeWith(replicated, nil, replicationWritten), ""},
		{"another kind", &storagev1alpha1.DPUStoragePolicy{}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := lost(row.read); got != row.want {
				t.Errorf("lost %q, want %q", got, row.want)
			}
		})
	}
}

// TestGuard: the process ends when the API server drops what an object has, however late it
// says so, and does not when the object has lost it for good.
func TestGuard(t *testing.T) {
	for _, row := range []struct {
		name string
		read client.Object
		// dropped is when the API server publishes that it drops the replication of volumes, silent
		// until when it does not answer; 0: never.
		dropped, silent time.Duration
		ends            string
		takes           time.Duration
	}{
		{name: "an object that has all", read: volumeWith(&storagev1alpha1.Replication{}, nil, replicationWritten)},
		{name: "an attachment without a role", read: attachmentOf(""), ends: "drops DPUVolumeAttachment.spec.role; apply Moor's CRDs"},
		{name: "a volume that is dropped of, as is known", read: volumeWith(nil, nil, replicationWritten), dropped: time.Nanosecond, takes: retry, ends: "drops DPUVolume.spec.replication; apply"},
		{name: "a volume that is dropped of, as is known later", read: volumeWith(nil, nil, replicationWritten), dropped: publishes - retry/2, takes: publishes, ends: "drops DPUVolume.spec.replication; apply"},
		{name: "a volume that is dropped of, as is known when the API server answers", read: volumeWith(nil, nil, replicationWritten), dropped: 3*publishes - retry/2, silent: 3*publishes - retry/2, takes: 3 * publishes, ends: "drops"},
		{name: "a volume that has lost it for good", read: volumeWith(nil, nil, replicationWritten), takes: publishes},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := compared(t, "host")
				if row.silent > 0 {
					s.become(func() { s.fails = errors.New("no route to host") })
					time.AfterFunc(row.silent, func() { s.become(func() { s.fails = nil }) })
				}
				if row.dropped > 0 {
					time.AfterFunc(row.dropped, func() {
						s.become(func() {
							delete(s.documents[storagev1alpha1.GroupVersion].Components.Schemas["DPUVolume"].Properties["spec"].Properties, "replication")
							s.changes = "a field"
						})
					})
				}
				ends := ""
				transform := newGuard(c, func(err error) { ends = err.Error() }).Transform(cache.TransformStripManagedFields())
				read := func(o client.Object) time.Duration {
					begin := time.Now()
					if got, err := transform(o); err != nil || got != any(o) || o.GetManagedFields() != nil {
						t.Errorf("transformed to %v, %v, with managed fields %v", got, err, o.GetManagedFields())
					}
					return time.Since(begin)
				}
				took := read(row.read)
				if !strings.Contains(ends, row.ends) || (row.ends == "") != (ends == "") {
					t.Errorf("ends with %q, want %q", ends, row.ends)
				}
				if took != row.takes {
					t.Errorf("took %s, want %s", took, row.takes)
				}
				if row.ends == "" && row.takes > 0 {
					if took := read(volumeWith(nil, nil, replicationWritten)); took != 0 {
						t.Errorf("one that is read with it took %s", took)
					}
					time.Sleep(2 * together) // of the bubble
					if took := read(volumeWith(nil, nil, replicationWritten)); took != publishes {
						t.Errorf("a later one took %s", took)
					}
				}
			})
		})
	}
}
