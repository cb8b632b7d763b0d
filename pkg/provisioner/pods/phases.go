package pods

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// Refused is an error that says to the user why a request cannot be met. It is final until the
// request, or the provisioner, is another.
type Refused struct{ Words string }

func (r *Refused) Error() string { return r.Words }

func refuse(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Validate evaluates volumeValidation and holds a request against it: a *Refused if it does not
// pass. The template is of the validation pod; nil: there is none. It runs for dynamic volumes
// only.
func (p *Provisioner) Validate(ctx context.Context, claims Claims, r Request, c Context) (*corev1.PodTemplateSpec, error) {
	e, end := evaluate(ctx, claims, c)
	defer end()
	if err := p.admits(e, r); err != nil {
		return nil, err
	}
	return p.pod(e, Validation)
}

// admits holds a request against the fields of volumeValidation.
func (p *Provisioner) admits(e evaluation, r Request) error {
	if r.FSType != "" {
		return refuse("provisioner %s stages directories, and makes no file system: %s is not for it", p.name, ParameterFSType)
	}
	if len(r.MountOptions) > 0 {
		return refuse("provisioner %s mounts nothing: mountOptions are not for it", p.name)
	}
	modes, err := p.words(e, p.volumeModes, volumeModes, defaultVolumeModes)
	if err != nil {
		return err
	}
	if !has(modes, r.Mode) {
		return refuse("provisioner %s supports volumeMode %s, and %s is asked for", p.name, strings.Join(modes, " and "), r.Mode)
	}
	if modes, err = p.words(e, p.accessModes, accessModes, defaultAccessModes); err != nil {
		return err
	}
	for _, m := range r.AccessModes {
		if !has(modes, m) {
			return refuse("provisioner %s supports accessModes %s, and %s is asked for", p.name, strings.Join(modes, ", "), m)
		}
	}
	return p.fits(e, r)
}

func has[S ~string](all []string, one S) bool {
	for _, s := range all {
		if s == string(one) {
			return true
		}
	}
	return false
}

// words evaluates a list of modes.
func (p *Provisioner) words(e evaluation, t *tree, of, otherwise []string) ([]string, error) {
	if t == nil {
		return otherwise, nil
	}
	v, err := e.of(t)
	if err != nil {
		return nil, err
	}
	out, err := oneOf(v, of)
	if err != nil {
		return nil, fmt.Errorf("%s %w", t.path, err)
	}
	return out, nil
}

// fits holds a request against the bounds of the capacity.
func (p *Provisioner) fits(e evaluation, r Request) error {
	least, err := p.bytes(e, p.minCapacity, floor)
	if err != nil {
		return err
	}
	most, err := p.bytes(e, p.maxCapacity, ceiling)
	if err != nil {
		return err
	}
	switch {
	case least != nil && most != nil && *least > *most:
		return fmt.Errorf("%s is %d and %s is %d: nothing is between them", p.minCapacity.path, *least, p.maxCapacity.path, *most)
	case r.MinBytes <= 0:
		return refuse("a volume of %d bytes is asked for: it has to be more than 0", r.MinBytes)
	case r.MaxBytes != nil && *r.MaxBytes < r.MinBytes:
		return refuse("at least %d and at most %d bytes are asked for", r.MinBytes, *r.MaxBytes)
	case most != nil && r.MinBytes > *most:
		return refuse("provisioner %s has volumes of at most %d bytes, and %d are asked for", p.name, *most, r.MinBytes)
	case least != nil && r.MaxBytes != nil && *r.MaxBytes < *least:
		return refuse("provisioner %s has volumes of at least %d bytes, and at most %d are asked for", p.name, *least, *r.MaxBytes)
	}
	return nil
}

// bytes evaluates a capacity; nil if the field is absent.
func (p *Provisioner) bytes(e evaluation, t *tree, round func(any) (int64, error)) (*int64, error) {
	if t == nil {
		return nil, nil
	}
	v, err := e.of(t)
	if err != nil {
		return nil, err
	}
	out, err := round(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	return &out, nil
}

// Made is volumeCreation as it is for one volume.
type Made struct {
	// Handle and CapacityBytes are what the fields say; nil where they are absent.
	Handle        *string
	CapacityBytes *int64
	// Pod is the template of the creation pod; nil: there is none, and the volume is there.
	Pod *corev1.PodTemplateSpec
}

// Create evaluates volumeCreation.
func (p *Provisioner) Create(ctx context.Context, claims Claims, c Context) (Made, error) {
	e, end := evaluate(ctx, claims, c)
	defer end()
	var out Made
	var err error
	if out.CapacityBytes, err = p.bytes(e, p.capacity, ceiling); err != nil {
		return out, err
	}
	if p.handle != nil {
		v, err := e.of(p.handle)
		if err == nil {
			err = handle(v)
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", p.handle.path, err)
		}
		given := v.(string)
		out.Handle = &given
	}
	out.Pod, err = p.pod(e, Creation)
	return out, err
}

// Resolve is the handle and the size of a volume that was made: what the creation pod has left in
// /pav goes before what the fields say. report is nil if there was no pod. A size that the
// request does not allow is an error.
func (m Made) Resolve(r Request, report *moorv1alpha1.PodReport, defaultHandle string) (volumeHandle string, bytes int64, err error) {
	volumeHandle = defaultHandle
	if m.Handle != nil {
		volumeHandle = *m.Handle
	}
	if report != nil && report.Handle != nil {
		if volumeHandle = *report.Handle; volumeHandle == "" {
			return "", 0, errors.New("the creation pod has left an empty /pav/handle")
		}
	}
	switch {
	case report != nil && report.Capacity != nil:
		if bytes, err = ceiling(*report.Capacity); err != nil {
			return "", 0, fmt.Errorf("the creation pod has left a /pav/capacity that cannot be used: %w", err)
		}
	case m.CapacityBytes != nil:
		bytes = *m.CapacityBytes
	default:
		return "", 0, errors.New("the creation pod has left no /pav/capacity, and spec.volumeCreation.capacity is not set")
	}
	switch {
	case bytes < r.MinBytes:
		return "", 0, fmt.Errorf("the volume has %d bytes, and at least %d are asked for", bytes, r.MinBytes)
	case r.MaxBytes != nil && bytes > *r.MaxBytes:
		return "", 0, fmt.Errorf("the volume has %d bytes, and at most %d are asked for", bytes, *r.MaxBytes)
	}
	return volumeHandle, bytes, nil
}

// Delete evaluates volumeDeletion: the template of the deletion pod; nil: there is none.
func (p *Provisioner) Delete(ctx context.Context, claims Claims, c Context) (*corev1.PodTemplateSpec, error) {
	e, end := evaluate(ctx, claims, c)
	defer end()
	return p.pod(e, Deletion)
}

// Stage evaluates volumeStaging: the template of the staging pod.
func (p *Provisioner) Stage(ctx context.Context, claims Claims, c Context) (*corev1.PodTemplateSpec, error) {
	e, end := evaluate(ctx, claims, c)
	defer end()
	return p.pod(e, Staging)
}

// Unstage evaluates volumeUnstaging: the template of the unstaging pod; nil: there is none.
func (p *Provisioner) Unstage(ctx context.Context, claims Claims, c Context) (*corev1.PodTemplateSpec, error) {
	e, end := evaluate(ctx, claims, c)
	defer end()
	return p.pod(e, Unstaging)
}

// Revoke evaluates volumeRevocation: the template of the revocation pod; nil: there is none.
func (p *Provisioner) Revoke(ctx context.Context, claims Claims, c Context) (*corev1.PodTemplateSpec, error) {
	e, end := evaluate(ctx, claims, c)
	defer end()
	return p.pod(e, Revocation)
}

func (p *Provisioner) pod(e evaluation, phase Phase) (*corev1.PodTemplateSpec, error) {
	t := p.templates[phase]
	if t == nil {
		return nil, nil
	}
	v, err := e.of(t)
	if err != nil {
		return nil, err
	}
	out, err := podTemplate(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	return out, nil
}

// podTemplate reads a pod template strictly: a field that does not exist, or is of another type, is
// a mistake in it.
func podTemplate(v any) (*corev1.PodTemplateSpec, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("has to be an object with metadata and spec")
	}
	for k := range object {
		if k != "metadata" && k != "spec" {
			return nil, fmt.Errorf("it has a field %s, and a pod template has metadata and spec", k)
		}
	}
	content, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write it as JSON: %w", err)
	}
	out := &corev1.PodTemplateSpec{}
	strict, err := kjson.UnmarshalStrict(bytes.TrimSpace(content), out)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return nil, fmt.Errorf("is no pod template: %w", err)
	}
	return out, nil
}
