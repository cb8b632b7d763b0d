// Package kit is what the tests, the demo and the benchmarks share: applying
// manifests, clients of both clusters, waiting with messages, counting leftovers.
package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner of what the kit applies.
const fieldOwner = client.FieldOwner("moor-kit")

// establishTimeout is how long a new CRD may take to be served.
const establishTimeout = time.Minute

// ReadManifests reads every object of the files, or of the *.yaml files of
// the directories, in the order of their names.
func ReadManifests(paths ...string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		} else if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
				return nil, fmt.Errorf("read manifests of %s: %w", path, err)
			}
			sort.Strings(files)
		}
		for _, file := range files {
			objects, err := readFile(file)
			if err != nil {
				return nil, fmt.Errorf("read manifest %s: %w", file, err)
			}
			out = append(out, objects...)
		}
	}
	return out, nil
}

func readFile(file string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var out []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// Apply applies every object of the paths by server-side apply, and waits
// until CRDs among them are served.
func Apply(ctx context.Context, c client.Client, paths ...string) error {
	objects, err := ReadManifests(paths...)
	if err != nil {
		return err
	}
	return ApplyObjects(ctx, c, objects)
}

// ApplyObjects is Apply for what was read already, and changed.
func ApplyObjects(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if inNamespace, err := c.IsObjectNamespaced(o); err == nil && inNamespace && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault) // as kubectl does
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := established(ctx, c, o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// WebhooksAt has API servers call the webhooks among the objects at an address, "host:port", where
// they do not reach Services. The path stays.
func WebhooksAt(address string, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != "ValidatingWebhookConfiguration" {
			continue
		}
		webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("read the webhooks of %s: %w", o.GetName(), err)
		}
		for _, w := range webhooks {
			path, _, err := unstructured.NestedString(w.(map[string]any), "clientConfig", "service", "path")
			if err != nil {
				return fmt.Errorf("read the path of a webhook of %s: %w", o.GetName(), err)
			}
			w.(map[string]any)["clientConfig"] = map[string]any{"url": "https://" + address + path}
		}
		if err := unstructured.SetNestedSlice(o.Object, webhooks, "webhooks"); err != nil {
			return fmt.Errorf("change the webhooks of %s: %w", o.GetName(), err)
		}
	}
	return nil
}

func established(ctx context.Context, c client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishTimeout, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return false, err
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until CRD %s is served: %w", name, err)
	}
	return nil
}
