package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/kit"
)

// templateParameters are those that PaV's examples read.
var templateParameters = map[string]string{"projectId": "p", "secretName": "key", "secretNamespace": "keys", "location": "here"}

// podTemplates measures how long the templates of one phase take, for each phase of each of PaV's own
// examples. A sample is the 99th percentile of one of them, and the worst counts.
func (b *bench) podTemplates(ctx context.Context) error {
	phases, err := examplePhases(filepath.Join(b.root, "pkg", "provisioner", "pods", "testdata"))
	if err != nil {
		return err
	}
	worst := b.series("podvolumes.templates", results.Millis, results.Worst)
	for _, phase := range phases {
		var took []time.Duration
		for i := range warmups + b.options.times(2000) {
			begin := time.Now()
			if err := phase(ctx); err != nil {
				return err
			}
			if i >= warmups {
				took = append(took, time.Since(begin))
			}
		}
		slices.Sort(took)
		worst.add(millis(took[(len(took)*99+99)/100-1]))
	}
	return nil
}

// examplePhases evaluate the templates of one phase each.
func examplePhases(directory string) ([]func(context.Context) error, error) {
	dynamic, staging, err := templateContexts()
	if err != nil {
		return nil, err
	}
	var out []func(context.Context) error
	for _, name := range []string{"1-hello-world", "2-google-cloud-storage", "3-transparent-encryption"} {
		p, err := exampleProvisioner(filepath.Join(directory, name+".yaml"))
		if err != nil {
			return nil, err
		}
		failed := func(phase pods.Phase, err error) error {
			if err != nil {
				return fmt.Errorf("evaluate %s of example %s: %w", phase, name, err)
			}
			return nil
		}
		out = append(out,
			func(ctx context.Context) error {
				_, err := p.Create(ctx, nil, dynamic)
				return failed(pods.Creation, err)
			},
			func(ctx context.Context) error {
				_, err := p.Delete(ctx, nil, dynamic)
				return failed(pods.Deletion, err)
			},
			func(ctx context.Context) error {
				_, err := p.Stage(ctx, nil, staging)
				return failed(pods.Staging, err)
			},
			func(ctx context.Context) error {
				_, err := p.Unstage(ctx, nil, staging)
				return failed(pods.Unstaging, err)
			})
	}
	return out, nil
}

// exampleProvisioner reads the first PavProvisioner of a file.
func exampleProvisioner(file string) (*pods.Provisioner, error) {
	objects, err := kit.ReadManifests(file)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.GetKind() != "PavProvisioner" {
			continue
		}
		p := &pavv1alpha1.PavProvisioner{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, p); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		compiled, wrong := pods.Compile(p)
		return compiled, wrong.ToAggregate()
	}
	return nil, fmt.Errorf("read %s: it has no PavProvisioner", file)
}

// templateContexts are what templates read: of a claim, and of its volume on a node.
func templateContexts() (dynamic, staging pods.Context, err error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "claim", UID: "uid", Annotations: map[string]string{"crypt/secretName": "key", "crypt/underlyingClaimName": "device"},
	}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Parameters: templateParameters}
	if _, dynamic, err = pods.OfClaim(claim, class); err != nil {
		return dynamic, staging, fmt.Errorf("make what templates read: %w", err)
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume"}}
	volume.Spec.AccessModes = claim.Spec.AccessModes
	volume.Spec.Capacity = claim.Spec.Resources.Requests
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver", VolumeHandle: "handle", VolumeAttributes: templateParameters}
	if staging, err = pods.OfStaging(volume, claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, false); err != nil {
		return dynamic, staging, fmt.Errorf("make what templates read: %w", err)
	}
	return dynamic, staging, nil
}
