package provisionertest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// blockSpec is a volume that every platform can make.
func blockSpec(name string) provisioner.VolumeSpec {
	return provisioner.VolumeSpec{
		Name:          name,
		CapacityBytes: 8 * mib,
		AccessModes:   []provisioner.AccessMode{provisioner.ReadWriteOnce},
		Mode:          provisioner.Block,
	}
}

// TestVolumes checks the contract of provisioner.Volumes. Each case calls open
// for an empty platform of its own.
func TestVolumes(t *testing.T, open func(t *testing.T) provisioner.Volumes) {
	t.Helper()
	cases := map[string]func(*testing.T, provisioner.Volumes){
		"create":             volumesCreate,
		"create repeated":    volumesCreateRepeated,
		"create differently": volumesCreateDifferently,
		"create wrongly":     volumesCreateWrongly,
		"create at once":     volumesCreateAtOnce,
		"delete":             volumesDelete,
		"get":                volumesGet,
		"canceled":           volumesCanceled,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

func volumesCreate(t *testing.T, v provisioner.Volumes) {
	ctx, spec := suiteContext(t), blockSpec("one")
	spec.LimitBytes = 64 * mib
	got, err := v.Create(ctx, spec)
	wantNil(t, "create", err)
	if got.ID == "" {
		t.Fatal("the volume has no ID")
	}
	if got.CapacityBytes < spec.CapacityBytes || got.CapacityBytes > spec.LimitBytes {
		t.Fatalf("capacity %d is outside %d..%d", got.CapacityBytes, spec.CapacityBytes, spec.LimitBytes)
	}
	if got.Mode != spec.Mode || !cmp.Equal(got.AccessModes, spec.AccessModes) {
		t.Fatalf("got mode %q and access modes %v, want those of %+v", got.Mode, got.AccessModes, spec)
	}
	other, err := v.Create(ctx, blockSpec("two"))
	wantNil(t, "create another", err)
	if other.ID == got.ID {
		t.Fatalf("two names got one ID %q", got.ID)
	}
	unsized := blockSpec("three")
	unsized.CapacityBytes = 0
	got, err = v.Create(ctx, unsized)
	wantNil(t, "create without a size", err)
	if got.CapacityBytes <= 0 {
		t.Fatalf("a volume made without a size has capacity %d", got.CapacityBytes)
	}
}

func volumesCreateRepeated(t *testing.T, v provisioner.Volumes) {
	ctx := suiteContext(t)
	first, err := v.Create(ctx, blockSpec("one"))
	wantNil(t, "create", err)
	second, err := v.Create(ctx, blockSpec("one"))
	wantNil(t, "create again", err)
	if diff := cmp.Diff(first, second, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("repeated create differs (-first +second):\n%s", diff)
	}
	smaller := blockSpec("one")
	smaller.CapacityBytes = mib
	second, err = v.Create(ctx, smaller)
	wantNil(t, "create again, satisfied with less", err)
	if second.ID != first.ID {
		t.Fatalf("got ID %q, want %q", second.ID, first.ID)
	}
}

func volumesCreateDifferently(t *testing.T, v provisioner.Volumes) {
	ctx := suiteContext(t)
	first, err := v.Create(ctx, blockSpec("one"))
	wantNil(t, "create", err)
	changes := map[string]func(*provisioner.VolumeSpec){
		"larger":         func(s *provisioner.VolumeSpec) { s.CapacityBytes = first.CapacityBytes + mib },
		"limit below it": func(s *provisioner.VolumeSpec) { s.CapacityBytes, s.LimitBytes = mib, first.CapacityBytes-mib },
		"access modes": func(s *provisioner.VolumeSpec) {
			s.AccessModes = []provisioner.AccessMode{provisioner.ReadWriteMany}
		},
	}
	for name, change := range changes {
		spec := blockSpec("one")
		change(&spec)
		_, err := v.Create(ctx, spec)
		wantError(t, "create again with other "+name, err, provisioner.ErrExists)
	}
	still, err := v.Get(ctx, first.ID)
	wantNil(t, "get", err)
	if diff := cmp.Diff(first, still, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("a refused create changed the volume:\n%s", diff)
	}
}

func volumesCreateWrongly(t *testing.T, v provisioner.Volumes) {
	ctx := suiteContext(t)
	changes := map[string]func(*provisioner.VolumeSpec){
		"no name":          func(s *provisioner.VolumeSpec) { s.Name = "" },
		"no access modes":  func(s *provisioner.VolumeSpec) { s.AccessModes = nil },
		"no mode":          func(s *provisioner.VolumeSpec) { s.Mode = "Tape" },
		"negative size":    func(s *provisioner.VolumeSpec) { s.CapacityBytes = -1 },
		"limit below size": func(s *provisioner.VolumeSpec) { s.LimitBytes = s.CapacityBytes - mib },
	}
	for name, change := range changes {
		spec := blockSpec("one")
		change(&spec)
		_, err := v.Create(ctx, spec)
		wantError(t, "create with "+name, err, provisioner.ErrInvalid, provisioner.ErrOutOfRange, provisioner.ErrUnsupported)
	}
}

func volumesCreateAtOnce(t *testing.T, v provisioner.Volumes) {
	ctx := suiteContext(t)
	got, errs := atOnce(func(int) (made provisioner.Volume, err error) {
		err = untilCertain(ctx, func() error {
			made, err = v.Create(ctx, blockSpec("one"))
			return err
		})
		return made, err
	})
	for i := range got {
		wantNil(t, "create at once", errs[i])
		if got[i].ID != got[0].ID {
			t.Fatalf("one name got two IDs, %q and %q", got[0].ID, got[i].ID)
		}
	}
}

func volumesDelete(t *testing.T, v provisioner.Volumes) {
	ctx := suiteContext(t)
	wantNil(t, "delete what never was", v.Delete(ctx, "no-such-volume"))
	made, err := v.Create(ctx, blockSpec("one"))
	wantNil(t, "create", err)
	keep, err := v.Create(ctx, blockSpec("two"))
	wantNil(t, "create another", err)
	wantNil(t, "delete", v.Delete(ctx, made.ID))
	wantNil(t, "delete again", v.Delete(ctx, made.ID))
	_, err = v.Get(ctx, made.ID)
	wantError(t, "get a deleted volume", err, provisioner.ErrNotFound)
	_, err = v.Get(ctx, keep.ID)
	wantNil(t, "get the other volume", err)
	_, err = v.Create(ctx, blockSpec("one"))
	wantNil(t, "create under the name of a deleted volume", err)
}

func volumesGet(t *testing.T, v provisioner.Volumes) {
	ctx := suiteContext(t)
	_, err := v.Get(ctx, "no-such-volume")
	wantError(t, "get what never was", err, provisioner.ErrNotFound)
	made, err := v.Create(ctx, blockSpec("one"))
	wantNil(t, "create", err)
	got, err := v.Get(ctx, made.ID)
	wantNil(t, "get", err)
	if diff := cmp.Diff(made, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("get differs from create (-create +get):\n%s", diff)
	}
}

// volumesCanceled: a call whose context has ended ends with an uncertain error
// or succeeds, and leaves nothing that a repeat cannot finish.
func volumesCanceled(t *testing.T, v provisioner.Volumes) {
	ctx := suiteContext(t)
	if _, err := v.Create(canceled(t), blockSpec("one")); err != nil {
		wantError(t, "create with an ended context", err, context.Canceled)
	}
	made, err := v.Create(ctx, blockSpec("one"))
	wantNil(t, "create after a canceled one", err)
	if err := v.Delete(canceled(t), made.ID); err != nil {
		wantError(t, "delete with an ended context", err, context.Canceled)
	}
	wantNil(t, "delete after a canceled one", v.Delete(ctx, made.ID))
}
