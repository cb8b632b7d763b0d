package kube

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Patch applies change to obj and writes the difference, if there is any, as
// a merge patch. obj holds the server's answer afterwards. It reports whether
// it wrote. Lists are replaced whole: use it on fields of which the caller is
// the only writer. It fails with a conflict if another object has the name of the one
// that was read (its UID).
func Patch[T client.Object](ctx context.Context, c client.Client, obj T, change func(T)) (bool, error) {
	return patch(obj, change, "", func(p client.Patch) error { return c.Patch(ctx, obj, p) })
}

// PatchStatus is Patch for the status subresource. There the server does not compare
// UIDs: if another object has the name by now, it has the status, and what follows from
// the write is stopped by the conflict.
func PatchStatus[T client.Object](ctx context.Context, c client.Client, obj T, change func(T)) (bool, error) {
	return patch(obj, change, "status of ", func(p client.Patch) error { return c.Status().Patch(ctx, obj, p) })
}

// PatchExact is Patch that fails with a conflict if the object has changed
// since it was read: for lists with several writers, such as finalizers.
func PatchExact[T client.Object](ctx context.Context, c client.Client, obj T, change func(T)) (bool, error) {
	return patch(obj, change, "", func(p client.Patch) error { return c.Patch(ctx, obj, p) }, client.MergeFromWithOptimisticLock{})
}

// PatchStatusExact is PatchExact for the status subresource.
func PatchStatusExact[T client.Object](ctx context.Context, c client.Client, obj T, change func(T)) (bool, error) {
	return patch(obj, change, "status of ", func(p client.Patch) error { return c.Status().Patch(ctx, obj, p) }, client.MergeFromWithOptimisticLock{})
}

// patch has the difference that change makes to obj written, if it makes one.
func patch[T client.Object](obj T, change func(T), what string, write func(client.Patch) error, how ...client.MergeFromOption) (bool, error) {
	before := obj.DeepCopyObject().(T)
	change(obj)
	if equality.Semantic.DeepEqual(before, obj) {
		return false, nil
	}
	uid := before.GetUID()
	before.SetUID("") // so the UID is part of the difference
	p := client.MergeFromWithOptions(before, how...)
	data, err := p.Data(obj)
	if err != nil {
		return false, fmt.Errorf("work out a patch of %s%s: %w", what, describe(obj), err)
	}
	if identifiesOnly(data) {
		return false, nil
	}
	err = write(client.RawPatch(p.Type(), data))
	if refusesUID(err) || (err == nil && uid != "" && obj.GetUID() != uid) {
		err = replaced(obj, uid)
	}
	if err != nil {
		return false, fmt.Errorf("patch %s%s: %w", what, describe(obj), err)
	}
	return true, nil
}

// identifiesOnly reports whether a patch names an object and changes nothing of it: what
// differed is not told in JSON, such as fractions of a second.
func identifiesOnly(patch []byte) bool {
	var p map[string]any
	if json.Unmarshal(patch, &p) != nil {
		return false
	}
	if about, ok := p["metadata"].(map[string]any); ok {
		delete(about, "uid")
		delete(about, "resourceVersion")
		if len(about) == 0 {
			delete(p, "metadata")
		}
	}
	return len(p) == 0
}

// AddFinalizer adds the finalizer, and reports whether it had to.
func AddFinalizer[T client.Object](ctx context.Context, c client.Client, obj T, finalizer string) (bool, error) {
	if controllerutil.ContainsFinalizer(obj, finalizer) {
		return false, nil // to compare a copy takes far longer, and most passes end here
	}
	return PatchExact(ctx, c, obj, func(o T) { controllerutil.AddFinalizer(o, finalizer) })
}

// RemoveFinalizers removes the finalizers that are there; an object that is
// gone is success.
func RemoveFinalizers[T client.Object](ctx context.Context, c client.Client, obj T, finalizers ...string) error {
	_, err := PatchExact(ctx, c, obj, func(o T) {
		for _, f := range finalizers {
			controllerutil.RemoveFinalizer(o, f)
		}
	})
	return IgnoreNotFound(err)
}

// Delete deletes exactly the object that was read (its UID); one that is gone
// or already being deleted is success.
func Delete(ctx context.Context, c client.Client, obj client.Object) error {
	uid := obj.GetUID()
	err := remove(ctx, c, obj, client.Preconditions{UID: &uid})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// DeleteExact is Delete that fails with a conflict if the object has changed
// since it was read.
func DeleteExact(ctx context.Context, c client.Client, obj client.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return remove(ctx, c, obj, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

func remove(ctx context.Context, c client.Client, obj client.Object, as client.Preconditions) error {
	if !obj.GetDeletionTimestamp().IsZero() {
		return nil
	}
	if err := c.Delete(ctx, obj, as); err != nil && !IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", describe(obj), err)
	}
	return nil
}

// Find reads an object by name; what does not exist is found == false.
func Find(ctx context.Context, r client.Reader, key types.NamespacedName, obj client.Object, options ...client.GetOption) (found bool, err error) {
	if err := r.Get(ctx, key, obj, options...); err != nil {
		if IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("read %T %s: %w", obj, key, err)
	}
	return true, nil
}

func describe(obj client.Object) string {
	return fmt.Sprintf("%T %s", obj, client.ObjectKeyFromObject(obj))
}
